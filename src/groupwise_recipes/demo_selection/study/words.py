"""The words of a study, those of all pages and its own, and how its numbers look."""

from pathlib import Path

from groupwise.evaluation import (
    DASH,
    Cell,
    Language,
    Phrases,
    choose_arrow,
    format_points,
    format_points_with_arrow,
    format_share,
)
from groupwise_recipes.demo_selection.study.arms import Arm
from groupwise_recipes.demo_selection.study.lists import SameLists

NOT_RUN = "?"
_PHRASES = Path(__file__).with_name("phrases.yaml")


def choose_words(language: Language) -> Phrases:
    """Return the words of a language."""
    return Phrases(language, own=_PHRASES)


def show_points(value: float | None, note: str = "", *, style: str = "") -> Cell:
    """Return a difference of shares in points with its arrow, ``?`` where there is none."""
    if value is None:
        return Cell(NOT_RUN, note)
    return Cell(format_points_with_arrow(value), note, value, style)


def show_change(value: float | None) -> Cell:
    """Return a relative change such as ``−13.5 %``, a dash where there is none."""
    if value is None:
        return Cell(DASH)
    return Cell(f"{format_points(value)}\u00a0%\u00a0{choose_arrow(value)}", order=value)


def show_number(value: float | None, digits: int) -> Cell:
    """Return a number with so many digits after the point, a dash where there is none."""
    if value is None:
        return Cell(DASH)
    return Cell(f"{value:.{digits}f}".replace("-", "\u2212"), order=value)


def show_share(same: SameLists, phrases: Phrases) -> Cell:
    """Return the share of lists that are the same, and of how many; ``?`` without any."""
    if same.share is None:
        return Cell(NOT_RUN)
    note = phrases.say("of", part=same.num_same, all=same.num_lists)
    return Cell(format_share(same.share), note, same.share)


def name_arms(first: Arm, second: Arm) -> str:
    """Return ``β = 0.15 − 0.12``."""
    return f"{first.name} \u2212 {second.beta:g}"
