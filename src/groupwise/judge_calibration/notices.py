"""What a reader must know about a judge before its numbers. Nothing is measured here."""

from collections.abc import Iterator, Mapping
from typing import Any

from groupwise.evaluation.metrics import Metric
from groupwise.evaluation.page import LEVELS, Level, Statement
from groupwise.judge_calibration.measures import JudgeMeasures

HIGH_FLIP_RATE = 0.1


def list_notices(measures: JudgeMeasures, facts: Mapping[str, Any]) -> list[Statement]:
    """Return the notices of the whole data, the gravest first."""
    found = {m.measure: m for m in measures.metrics if m.split == "all"}
    notices = [*_list_notices(found), *_note_drops(facts["drops"])]
    return sorted(notices, key=lambda notice: LEVELS.index(notice.level))


def _note(kind: str, level: Level, **values: object) -> Statement:
    return Statement(kind, values, level, "calibration.json")


def _list_notices(found: Mapping[str, Metric]) -> Iterator[Statement]:
    kappa, rate = found.get("kappa"), found.get("no_verdict_rate")
    flips, bias = found.get("flip_rate"), found.get("length_bias")
    if kappa is not None and kappa.low <= 0:
        kind = "judge.worse_than_chance" if kappa.high < 0 else "judge.not_above_chance"
        yield _note(kind, "error", value=kappa.value, low=kappa.low, high=kappa.high)
    if rate is not None and rate.value > 0:
        yield _note("judge.no_verdict", "warning", rate=rate.value)
    if flips is not None and flips.value > HIGH_FLIP_RATE:
        yield _note("judge.flips", "warning", rate=flips.value)
    if bias is not None and (bias.low > 0 or bias.high < 0):
        kind = "judge.prefers_longer" if bias.value > 0 else "judge.prefers_shorter"
        yield _note(kind, "warning", value=bias.value)
    if "agreement" not in found:
        yield _note("judge.silent", "error")


def _note_drops(drops: Mapping[str, Any]) -> Iterator[Statement]:
    if drops["total"]:
        reasons = [f"{number} {name}" for name, number in drops["counts"].items()]
        yield _note("judge.drops", "info", num=drops["total"], reasons=reasons)
