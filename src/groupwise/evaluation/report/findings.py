"""What the numbers say: statements made from numbers only; the same numbers give the same ones.

A statement whose numbers are not there is left out. Nothing here recommends or explains.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from groupwise.evaluation.metrics import Metric
from groupwise.evaluation.page import Statement
from groupwise.evaluation.paired import PairedComparison
from groupwise.evaluation.policies import Policies
from groupwise.evaluation.predictions import ACCURACY, Measure

CLEAR_P = 0.05
Measures = Mapping[str, Metric]


def state_findings(
    split: str,
    by_policy: Mapping[str, Measures],
    comparisons: Sequence[PairedComparison],
    policies: Policies,
    *,
    headline: Measure = ACCURACY,
    num_clusters: int,
) -> tuple[Statement, ...]:
    """Return the statements of the findings paragraph for the metrics of one split.

    Args:
        split: its name.
        by_policy: metrics by policy, in order, and measure.
        comparisons: of any splits.
        policies: what they are.
        headline: the measure that is spoken of.
        num_clusters: of its items; 0 where not known.
    """
    if not by_policy:
        return ()
    last = list(by_policy)[-1]
    measures = by_policy[last]
    here = [one for one in comparisons if one.split == split]
    return (
        _state_last(split, last, measures[headline.name], num_clusters, headline),
        *_state_gains(last, here, policies, headline),
        *_state_baselines(by_policy, last, policies, headline.name),
        *_state_labels(measures),
        *_state_answers(measures),
        *([Statement("finding.one_training")] if here else []),
    )


def _state_last(
    split: str, last: str, metric: Metric, num_clusters: int, headline: Measure
) -> Statement:
    clusters = Statement("run.in_clusters", {"num": num_clusters}) if num_clusters else None
    values = {"split": split, "policy": last, "value": metric.value, "n": metric.n}
    values |= {"clusters": clusters, "ends": (metric.low, metric.high)}
    if headline is ACCURACY:
        return Statement("run.accuracy", values)
    return Statement("run.mean_of", {**values, "measure": headline})


def _state_gains(
    last: str, comparisons: Sequence[PairedComparison], policies: Policies, headline: Measure
) -> Iterator[Statement]:
    """Say what the last policy is clearly above, clearly below, or neither."""
    mine = [
        one
        for one in comparisons
        if one.measure == headline.name
        and one.policy_b == last
        and not policies.is_baseline(one.policy_a)
    ]
    for kind, wanted in (("above", 1), ("below", -1), ("close", 0)):
        parts = [
            Statement(f"run.part_{kind}", _describe(one))
            for one in mine
            if judge_difference(one, headline) == wanted
        ]
        if parts:
            yield Statement("run.close" if kind == "close" else "run.gains", {"parts": parts})
        if kind != "close":
            yield from remark_carrying(
                one for one in mine if judge_difference(one, headline) == wanted
            )


def remark_carrying(comparisons: Iterable[PairedComparison]) -> Iterator[Statement]:
    """Say once if clear differences rest on few clusters: on how many the one with fewest does."""
    few = [one.num_carrying or 0.0 for one in comparisons if one.rests_on_few]
    if few:
        kind = "finding.rests_on_few" if len(few) == 1 else "finding.several_rest_on_few"
        yield Statement(kind, {"num": round(min(few)), "many": len(few)})


def _describe(one: PairedComparison) -> dict[str, object]:
    return {
        "a": one.policy_a,
        "b": one.policy_b,
        "difference": one.difference,
        "ends": (one.low, one.high),
        "clustered": one.p_value_clustered,
        "p": one.p_value_holm,
        "adjusted": None,
        "in_measure": None,
    }


def judge_difference(one: PairedComparison, measure: Measure = ACCURACY) -> int:
    """Return 1 or -1 where b is clearly better or worse than a, 0 where neither is shown.

    Clear means: the interval does not contain 0 and the p-value adjusted by Holm's method,
    with clusters as the unit, is below 0.05.
    """
    if one.p_value_holm >= CLEAR_P or one.low <= 0 <= one.high:
        return 0
    return 1 if measure.sign * one.difference > 0 else -1


def describe_comparison(one: PairedComparison, measure: Measure = ACCURACY) -> Statement:
    """Say how policy b differs from policy a.

    Args:
        one: the comparison.
        measure: what it is of.
    """
    is_right = measure is ACCURACY
    kind = {0: "close", 1: "better", -1: "worse"}[judge_difference(one, measure)]
    wins, losses = one.count_wins(measure)
    values = _describe(one) | {"wins": wins, "losses": losses, "measure": measure}
    if one.p_value_holm != one.p_value_clustered:
        values["adjusted"] = Statement("run.adjusted", {"p": one.p_value_holm})
    if kind == "close" and not is_right:
        values["in_measure"] = Statement("run.in_measure", {"measure": measure})
    is_told_as_right = is_right and kind != "close"
    return Statement(f"run.pair_{kind}{'_right' if is_told_as_right else ''}", values)


def _state_baselines(
    by_policy: Mapping[str, Measures], last: str, policies: Policies, headline: str
) -> Iterator[Statement]:
    names = [name for name in by_policy if policies.is_baseline(name)]
    if names and names[-1] != last:
        best = max(names, key=lambda name: by_policy[name][headline].value)
        values = {"num": len(names), "policy": best, "value": by_policy[best][headline].value}
        yield Statement("run.baseline" if len(names) == 1 else "run.best_baseline", values)


def _state_labels(measures: Measures) -> Iterator[Statement]:
    recalls = {name: m.value for name, m in measures.items() if name.startswith("recall:")}
    if len(recalls) < 2:
        return
    worst, best = min(recalls, key=recalls.__getitem__), max(recalls, key=recalls.__getitem__)
    if recalls[worst] < recalls[best]:
        values = {"worst": worst.removeprefix("recall:"), "best": best.removeprefix("recall:")}
        ends = {"value_worst": recalls[worst], "value_best": recalls[best]}
        yield Statement("run.labels", values | ends)


def _state_answers(measures: Measures) -> Iterator[Statement]:
    invalid = measures.get("invalid_rate")
    if invalid is not None:
        kind = "run.some_invalid" if invalid.value else "run.none_invalid"
        yield Statement(kind, {"value": invalid.value})
    for kind, name in (("run.confidence", "ece"), ("run.latency", "latency_p50_s")):
        if name in measures:
            yield Statement(kind, {"value": measures[name].value})
