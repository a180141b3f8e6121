"""Effects stand on fields, hold for the sections below them, and are found by path."""

from collections.abc import Mapping
from typing import Annotated

from groupwise.core import BUDGET, Config, Harmless, Source, find_effect, list_effects

LOOK = Harmless("only looked at", "仅旁观")


class Inner(Config):
    size: int = 0
    rate: Annotated[float, BUDGET] = 0.0


class Other(Config):
    size: Annotated[int, LOOK] = 0


class Outer(Config):
    seed: int = 0
    root: Annotated[str | None, Source("data")] = None
    one: Inner = Inner()
    seen: Annotated[Inner, LOOK] = Inner()
    either: Inner | Other | None = None
    named: dict[str, Inner] = {}  # noqa: RUF012
    rows: tuple[Inner, ...] = ()


def test_every_path_has_its_effect() -> None:
    kinds = {path: effect.kind for path, effect in list_effects(Outer).items()}
    assert kinds == {
        "seed": "counts",
        "root": "source",
        "one": "counts",
        "one.size": "counts",
        "one.rate": "budget",
        "seen": "harmless",
        "seen.size": "harmless",
        "seen.rate": "budget",
        "either": "counts",
        "either.size": "counts",
        "either.rate": "budget",
        "named": "counts",
        "named.*.size": "counts",
        "named.*.rate": "budget",
        "rows": "counts",
    }


def test_a_setting_is_found_by_its_path_or_by_its_section() -> None:
    effects = list_effects(Outer)
    assert find_effect(effects, "named.left.rate") == BUDGET
    assert find_effect({"seen": LOOK}, "seen.size.deep") == LOOK
    assert find_effect({"seen": LOOK, "seen.size": BUDGET}, "seen.size") == BUDGET
    assert find_effect(effects, "gone").kind == "counts"
    assert isinstance(effects, Mapping)
