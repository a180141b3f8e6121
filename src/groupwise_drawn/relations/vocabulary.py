"""What scenes are made of, and what things and relations are called in English and Chinese."""

from collections.abc import Mapping
from itertools import combinations
from typing import Literal, get_args

__all__ = [
    "COLORS",
    "INVERSES",
    "KINDS",
    "LANGUAGES",
    "RELATIONS",
    "SPLITS",
    "STYLES",
    "Color",
    "Kind",
    "Language",
    "Relation",
    "Split",
    "Style",
    "list_kind_pairs",
    "name_thing",
    "write_claim",
]

Kind = Literal["ball", "box", "chair", "cup", "lamp", "tree", "car", "house", "table", "bottle"]
Color = Literal["red", "yellow", "green", "blue", "purple", "black"]
Relation = Literal["left of", "right of", "above", "below", "in front of", "behind"]
Split = Literal["train", "validation", "test"]
Style = Literal["flat", "textured"]
Language = Literal["en", "zh"]

KINDS: tuple[Kind, ...] = get_args(Kind)
RELATIONS: tuple[Relation, ...] = get_args(Relation)
SPLITS: tuple[Split, ...] = get_args(Split)
STYLES: tuple[Style, ...] = get_args(Style)
LANGUAGES: tuple[Language, ...] = get_args(Language)

COLORS: Mapping[Color, tuple[int, int, int]] = {
    "red": (215, 40, 40),
    "yellow": (235, 200, 40),
    "green": (40, 160, 60),
    "blue": (45, 80, 215),
    "purple": (150, 45, 170),
    "black": (25, 25, 25),
}
INVERSES: Mapping[Relation, Relation] = {
    "left of": "right of",
    "right of": "left of",
    "above": "below",
    "below": "above",
    "in front of": "behind",
    "behind": "in front of",
}
"""A is left of B where B is right of A, and where A is not right of B."""

_CHINESE_COLORS: Mapping[Color, str] = {
    "red": "红色",
    "yellow": "黄色",
    "green": "绿色",
    "blue": "蓝色",
    "purple": "紫色",
    "black": "黑色",
}
_CHINESE_KINDS: Mapping[Kind, str] = {
    "ball": "球",
    "box": "箱子",
    "chair": "椅子",
    "cup": "杯子",
    "lamp": "台灯",
    "tree": "树",
    "car": "汽车",
    "house": "房子",
    "table": "桌子",
    "bottle": "瓶子",
}
_CHINESE_PLACES: Mapping[Relation, str] = {
    "left of": "左边",
    "right of": "右边",
    "above": "上方",
    "below": "下方",
    "in front of": "前面",
    "behind": "后面",
}
_SPLIT_OF_MATCHING: tuple[Split, ...] = ("train",) * 6 + ("validation",) + ("test",) * 2


def list_kind_pairs(split: Split) -> list[tuple[Kind, Kind]]:
    """Return the kinds that meet in a split: no two meet in two splits.

    The ten kinds are dealt in nine rounds of a tournament in which each meets each other once, so
    every kind is as frequent as every other in every split.
    """
    last = len(KINDS) - 1

    def find_round(first: int, second: int) -> int:
        return (2 * first if second == last else first + second) % last

    return [
        (KINDS[first], KINDS[second])
        for first, second in combinations(range(len(KINDS)), 2)
        if _SPLIT_OF_MATCHING[find_round(first, second)] == split
    ]


def name_thing(kind: Kind, color: Color | None, language: Language) -> str:
    """Return what a thing is called, with its colour or without: "red ball"."""
    if language == "en":
        return f"{color} {kind}" if color else kind
    return f"{_CHINESE_COLORS[color]}{_CHINESE_KINDS[kind]}" if color else _CHINESE_KINDS[kind]


def write_claim(subject: str, relation: Relation, other: str, language: Language) -> str:
    """Return the sentence that ``subject`` is in that relation to ``other``, both as named."""
    if language == "en":
        return f"The {subject} is {relation} the {other}."
    return f"{subject}在{other}的{_CHINESE_PLACES[relation]}。"
