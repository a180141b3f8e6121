"""English words for drawn cabinets: missions, things and how they are."""

from groupwise_drawn.cabinets.descriptions import IRRELEVANT, read_objects

__all__ = ["ENGLISH_MISSIONS", "translate_description"]

ENGLISH_MISSIONS = {
    "BBU安装方式检查（正装）": "BBU mounting",
    "BBU接地线检查": "BBU earth wire",
    "BBU线缆布放要求": "BBU cable routing",
    "挡风板安装检查": "wind deflector",
}
_ENGLISH_IRRELEVANT = "irrelevant photo"
_WORDS = {
    "BBU设备": "BBU unit",
    "正装": "upright",
    "安装牢固": "mounted firmly",
    "未正装": "not upright",
    "上下倒置": "upside down",
    "左右歪斜": "tilted",
    "接地线": "earth wire",
    "黄绿色": "yellow-green",
    "连接牢固": "connected firmly",
    "未安装": "not installed",
    "一端未连接": "one end not connected",
    "颜色不符": "colour not as required",
    "线缆束": "cable bundle",
    "布放整齐": "laid tidily",
    "扎带固定": "tied",
    "布放不整齐": "not laid tidily",
    "交叉缠绕": "crossing",
    "未绑扎": "not tied",
    "散开": "loose",
    "挡风板": "wind deflector",
    "已安装": "installed",
    "位置正确": "in its place",
    "安装不到位": "not in its place",
    "机柜": "cabinet",
    "柜门关闭": "door closed",
    "门锁": "door lock",
    "纸板": "cardboard",
    "遮挡视线": "blocking the view",
    "接地排": "earth bar",
    "铜质": "copper",
    "风扇框": "fan tray",
    "白色": "white",
    "黑色": "black",
    "蓝色": "blue",
    "红色": "red",
}


def translate_description(line: str) -> str:
    """Return a Chinese line in English: ``thing/attribute×N`` joined by ``, ``."""
    if line == IRRELEVANT:
        return _ENGLISH_IRRELEVANT
    return ", ".join(
        "/".join(_WORDS[word] for word in (one.name, *one.attributes)) + f"×{one.count}"
        for one in read_objects(line)
    )
