"""What a reader must know about a judge before its numbers. Nothing is measured here."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from groupwise.evaluation.judges.measures import JudgeMeasures
from groupwise.evaluation.metrics import Metric
from groupwise.evaluation.report.content import Notice
from groupwise.evaluation.report.numbers import (
    format_points,
    format_score,
    format_share,
)

_SOURCE = "calibration.json"
HIGH_FLIP_RATE = 0.1


def list_notices(measures: JudgeMeasures, facts: Mapping[str, Any]) -> list[Notice]:
    """Return the notices of the whole data, the gravest first."""
    found = {m.measure: m for m in measures.metrics if m.split == "all"}
    notices = [
        *(
            notice
            for name, check in _CHECKS.items()
            if name in found
            for notice in check(found[name])
        ),
        *_describe_drops(facts),
    ]
    if "agreement" not in found:
        notices.append(Notice("error", "The judge gave no verdict at all.", _SOURCE))
    order = ("error", "warning", "info")
    return sorted(notices, key=lambda notice: order.index(notice.level))


def format_kappa(value: float) -> str:
    """Format kappa with three digits and a true minus sign."""
    return format_score(value).replace("-", "\u2212")


def _check_kappa(metric: Metric) -> Iterator[Notice]:
    if metric.low > 0:
        return
    ends = f"{format_kappa(metric.low)} to {format_kappa(metric.high)}"
    what = "is worse than" if metric.high < 0 else "is not shown to be better than"
    text = f"Agreement {what} chance: Cohen's κ is {format_kappa(metric.value)} ({ends})."
    yield Notice("error", text, _SOURCE)


def _check_no_verdict(metric: Metric) -> Iterator[Notice]:
    if metric.value > 0:
        text = (
            f"No verdict in {format_share(metric.value)} of the calls: they are in no other number."
        )
        yield Notice("warning", text, _SOURCE)


def _check_flips(metric: Metric) -> Iterator[Notice]:
    if metric.value > HIGH_FLIP_RATE:
        text = (
            f"{format_share(metric.value)} of the verdicts change with the order of the answers: "
            "ask in both orders and take flipped verdicts as undecided."
        )
        yield Notice("warning", text, _SOURCE)


def _check_length(metric: Metric) -> Iterator[Notice]:
    if metric.low > 0 or metric.high < 0:
        side = "longer" if metric.value > 0 else "shorter"
        text = (
            f"The judge prefers the {side} answer more often than people do, by "
            f"{format_points(abs(metric.value)).removeprefix('+')} points."
        )
        yield Notice("warning", text, _SOURCE)


def _describe_drops(facts: Mapping[str, Any]) -> Iterator[Notice]:
    drops: Mapping[str, Any] = facts["drops"]
    if drops["total"]:
        reasons = ", ".join(f"{number} {name}" for name, number in drops["counts"].items())
        yield Notice(
            "info", f"{drops['total']} rows of the data were not used: {reasons}.", _SOURCE
        )


_CHECKS: Mapping[str, Callable[[Metric], Iterator[Notice]]] = {
    "kappa": _check_kappa,
    "no_verdict_rate": _check_no_verdict,
    "flip_rate": _check_flips,
    "length_bias": _check_length,
}
