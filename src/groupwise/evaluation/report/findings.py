"""The findings in words, made from numbers only: the same numbers give the same sentences.

A sentence whose numbers are not there is left out. Nothing here recommends or explains.
"""

from collections.abc import Iterator, Sequence

from groupwise.evaluation.measures import ACCURACY, Measure
from groupwise.evaluation.metrics import Metric
from groupwise.evaluation.paired import PairedComparison
from groupwise.evaluation.report.content import BLIND_POLICIES, Headline, HeadlineRow, title_policy
from groupwise.evaluation.report.numbers import (
    count_things,
    format_duration,
    format_p_value,
    format_points,
    format_points_interval,
    format_share,
    format_share_interval,
)

CLEAR_P = 0.05
_SCOPE = (
    "All of this is about these checkpoints: intervals and tests draw items, not trainings. One "
    "training per side says nothing about the method; for that, train each side with several seeds."
)


def state_findings(
    headline: Headline | None,
    comparisons: Sequence[PairedComparison],
    metrics: Sequence[Metric],
    num_groups: int,
) -> tuple[str, ...]:
    """Return the sentences of the findings paragraph for one headline table."""
    if headline is None:
        return ()
    last = headline.rows[-1]
    here = {metric.name: metric for metric in metrics if metric.split == headline.split}
    return (
        *_state_last(last, headline, num_groups),
        *_state_gains(last, [one for one in comparisons if one.split == headline.split]),
        *_state_blind(headline),
        *_state_labels(last.policy, here),
        *_state_answers(last, here),
        *([_SCOPE] if any(one.split == headline.split for one in comparisons) else []),
    )


def _state_last(last: HeadlineRow, headline: Headline, num_groups: int) -> Iterator[str]:
    metric = last.accuracy
    where = f"{headline.split} ({count_things(metric.n, 'item')}"
    where += f" in {count_things(num_groups, 'group')})" if num_groups else ")"
    ends = format_share_interval(metric.low, metric.high)
    clustered = (
        f"; {format_share_interval(last.clustered.low, last.clustered.high)} when whole groups "
        "are drawn"
        if last.clustered
        else ""
    )
    yield (
        f"On {where}, {last.title} is right in {format_share(metric.value)} of the cases "
        f"(95 % interval {ends}{clustered})."
    )


def _state_gains(last: HeadlineRow, comparisons: Sequence[PairedComparison]) -> Iterator[str]:
    """Say what the last policy is clearly above, clearly below, or neither."""
    mine = [
        one
        for one in comparisons
        if one.measure == ACCURACY.name
        and one.policy_b == last.policy
        and one.policy_a not in BLIND_POLICIES
    ]
    for word, wanted in (("above", 1), ("below", -1)):
        parts = [
            f"{format_points(abs(one.difference)).lstrip('+')} points {word} "
            f"{title_policy(one.policy_a)} ({format_points_interval(one.low, one.high)}, "
            f"{format_p_value(one.p_value_holm)})"
            for one in mine
            if judge_difference(one) == wanted
        ]
        if parts:
            yield f"That is {join_words(parts)}."
    close = [
        f"{title_policy(one.policy_a)} ({format_points(one.difference)} points, "
        f"{format_points_interval(one.low, one.high)}, {format_p_value(one.p_value_holm)})"
        for one in mine
        if judge_difference(one) == 0
    ]
    if close:
        yield f"On these items it cannot be told apart from {join_words(close)}."


def judge_difference(one: PairedComparison, measure: Measure = ACCURACY) -> int:
    """Return 1 or -1 where b is clearly better or worse than a, 0 where neither is shown.

    Clear means: the interval does not contain 0 and the p-value adjusted by Holm's method,
    with groups as the unit, is below 0.05.
    """
    if one.p_value_holm >= CLEAR_P or one.low <= 0 <= one.high:
        return 0
    return 1 if measure.sign * one.difference > 0 else -1


def join_words(parts: Sequence[str]) -> str:
    """Join parts as ``a, b and c``."""
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)


def describe_comparison(one: PairedComparison, measure: Measure = ACCURACY) -> str:
    """Say in one or two sentences how policy b differs from policy a.

    Args:
        one: the comparison.
        measure: what it is of.
    """
    a, b = title_policy(one.policy_a), title_policy(one.policy_b)
    ends = f"95 % interval {format_points_interval(one.low, one.high)}"
    p = f"{format_p_value(one.p_value_clustered)} by groups"
    if one.p_value_holm != one.p_value_clustered:
        p += f", {format_p_value(one.p_value_holm)} after Holm"
    verdict = judge_difference(one, measure)
    name = "" if measure is ACCURACY else f" in {measure.title}"
    if verdict == 0:
        return (
            f"{b} and {a} cannot be told apart{name} on these items: the difference is "
            f"{format_points(one.difference)} points ({ends}; {p})."
        )
    points = format_points(abs(one.difference)).lstrip("+")
    wins, losses = one.count_wins(measure)
    if measure is ACCURACY:
        word = "more" if verdict > 0 else "fewer"
        return (
            f"{b} gets {points} points {word} right than {a} ({ends}; {p}): "
            f"{count_things(wins, 'item')} only {b} has right, {losses} only {a}."
        )
    word = "better" if verdict > 0 else "worse"
    return (
        f"{b} is {points} points {word}{name} than {a} ({ends}; {p}): "
        f"{b} is better on {count_things(wins, 'item')}, {a} on {losses}."
    )


def _state_blind(headline: Headline) -> Iterator[str]:
    blind = [row for row in headline.rows if row.policy in BLIND_POLICIES]
    if blind and blind[-1] is not headline.rows[-1]:
        best = max(blind, key=lambda row: row.accuracy.value)
        names = "baseline" if len(blind) == 1 else f"best of the {len(blind)} baselines"
        yield (
            f"The {names} that do not see the whole task, {best.title}, reaches "
            f"{format_share(best.accuracy.value)}."
        )


def _state_labels(policy: str, here: dict[str, Metric]) -> Iterator[str]:
    prefix = f"{policy}/recall:"
    recalls = [metric for name, metric in here.items() if name.startswith(prefix)]
    if len(recalls) < 2:
        return
    worst = min(recalls, key=lambda metric: metric.value)
    best = max(recalls, key=lambda metric: metric.value)
    if worst.value < best.value:
        yield (
            f"Of the items that are {worst.name.removeprefix(prefix)} it finds "
            f"{format_share(worst.value)}, of those that are {best.name.removeprefix(prefix)} "
            f"{format_share(best.value)}."
        )


def _state_answers(last: HeadlineRow, here: dict[str, Metric]) -> Iterator[str]:
    if last.invalid_rate is not None:
        rate = last.invalid_rate.value
        share = (
            "None of its answers is" if rate == 0 else f"{format_share(rate)} of its answers are"
        )
        yield f"{share} invalid."
    error = here.get(f"{last.policy}/ece")
    if error is not None:
        points = format_points(error.value).lstrip("+±")
        yield f"Its confidence differs from its accuracy by {points} points on average."
    latency = here.get(f"{last.policy}/latency_p50_s")
    if latency is not None:
        yield f"Half of the answers take no more than {format_duration(latency.value)}."
