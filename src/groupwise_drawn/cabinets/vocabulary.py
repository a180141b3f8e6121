"""What is inspected in a cabinet and the words for it: the key thing of each mission, its states.

A wrong state always says 未… or 不…, a right one and one that cannot be made out never do.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

__all__ = [
    "CABINET_MISSIONS",
    "COLOR_WORDS",
    "KEY_THINGS",
    "CabinetColor",
    "KeyThing",
    "Kind",
    "State",
    "WireColor",
]

State = Literal["right", "wrong", "unclear", "irrelevant"]
Kind = Literal["unit", "wire", "cables", "deflector"]
CabinetColor = Literal["white", "black", "blue"]
WireColor = Literal["red", "blue", "black"]

COLOR_WORDS: dict[str, str] = {"white": "白色", "black": "黑色", "blue": "蓝色", "red": "红色"}


@dataclass(frozen=True, slots=True)
class KeyThing:
    """What a mission is about.

    Attributes:
        kind: its name for the painters.
        name: its name in descriptions.
        right: attributes when all is right.
        wrong: attributes by the name of the fault. ``{color}`` is the colour of the wire.
    """

    kind: Kind
    name: str
    right: tuple[str, ...]
    wrong: Mapping[str, tuple[str, ...]]


KEY_THINGS: dict[str, KeyThing] = {
    "BBU安装方式检查（正装）": KeyThing(
        "unit",
        "BBU设备",
        ("正装", "安装牢固"),
        {"inverted": ("未正装", "上下倒置"), "tilted": ("未正装", "左右歪斜")},
    ),
    "BBU接地线检查": KeyThing(
        "wire",
        "接地线",
        ("黄绿色", "连接牢固"),
        {
            "absent": ("未安装",),
            "loose": ("黄绿色", "一端未连接"),
            "color": ("{color}", "颜色不符"),
        },
    ),
    "BBU线缆布放要求": KeyThing(
        "cables",
        "线缆束",
        ("布放整齐", "扎带固定"),
        {"crossing": ("布放不整齐", "交叉缠绕"), "untied": ("未绑扎", "散开")},
    ),
    "挡风板安装检查": KeyThing(
        "deflector",
        "挡风板",
        ("已安装", "位置正确"),
        {"absent": ("未安装",), "crooked": ("安装不到位", "左右歪斜")},
    ),
}
CABINET_MISSIONS: tuple[str, ...] = tuple(KEY_THINGS)
