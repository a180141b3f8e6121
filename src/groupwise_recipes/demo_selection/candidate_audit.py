"""The audit of recorded candidates: is there anything in them to learn from, and is it right?"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from groupwise.core import (
    Completion,
    Finding,
    Message,
    make_example,
    report_places,
    write_json,
    write_text,
)
from groupwise.data.audit import DataAudit
from groupwise.rewards import VqaAccuracy
from groupwise_recipes.demo_selection.candidates import Candidate, RecordedQuery, Recording
from groupwise_recipes.demo_selection.recorded_groups import combine_rewards
from groupwise_recipes.demo_selection.settings import RewardMode

OFFICIAL = ("vqaEval", "VqaAccuracy")
_FEW_POSITIVE = 0.5
_USABLE = (
    "Something to learn from has one for at least {least:.0%} of them, better for most: of the two "
    "published files one has 664 of 800 and a mean reward of 1.0264, the other 5 of 800."
)
_MANY_EQUAL = 0.5


@dataclass(frozen=True)
class CandidateLimits:
    """What recorded candidates must be like for a selector to be trained on them.

    Attributes:
        min_positive_queries: least share of queries with a positive list.
        max_equal_queries: greatest share of queries whose lists all have the same reward: they
            teach GRPO nothing.
        max_failed: greatest share of lists whose evaluation failed.
    """

    min_positive_queries: float = 0.1
    max_equal_queries: float = 0.9
    max_failed: float = 0.05


@dataclass(frozen=True, slots=True)
class CandidateFigures:
    """Counts of a recording.

    A list is positive if its answer is correct by the recording's definition. Lists whose
    evaluation failed have no reward and count nowhere but among the failed.
    """

    num_queries: int
    num_lists: int
    num_failed: int  # lists whose evaluation failed
    num_positive_queries: int  # queries with a positive list
    num_positive_lists: int
    num_equal_queries: int  # whose rewards have no variance, those without rewards included
    mean_reward: float | None  # over the lists that have one; None: there are none
    distinct_rewards: Mapping[int, int]  # queries by how many different rewards their lists have
    methods: Mapping[str, int]  # lists by what made them
    rewards: Mapping[float, int]  # lists by reward


@dataclass(frozen=True, slots=True)
class CandidateAudit:
    """What an audit found."""

    figures: CandidateFigures
    findings: tuple[Finding, ...]  # errors first, then warnings
    correct: str  # what makes a list positive, in words
    digest: str  # of the recording

    def refuse_errors(self) -> None:
        """Stop on errors."""
        DataAudit(self.findings, {}).refuse_errors()


def measure_candidates(recording: Recording, *, mode: RewardMode) -> CandidateFigures:
    """Return the counts of a recording; raises as ``audit_candidates``."""
    values = [
        [value for one in query.candidates if (value := recording.read_values(one)) is not None]
        for query in recording.queries
    ]
    pairs = [torch.tensor(one, dtype=torch.float64).reshape(-1, 2) for one in values]
    rewards = [combine_rewards(one[:, 0], one[:, 1], mode=mode).tolist() for one in pairs]
    every = [one for of_query in rewards for one in of_query]
    positive = [sum(hard > 0 for hard, _ in of_query) for of_query in values]
    distinct = [len(set(of_query)) for of_query in rewards]
    lists = [one for query in recording.queries for one in query.candidates]
    return CandidateFigures(
        num_queries=len(recording.queries),
        num_lists=len(lists),
        num_failed=len(lists) - len(every),
        num_positive_queries=sum(count > 0 for count in positive),
        num_positive_lists=sum(positive),
        num_equal_queries=sum(count < 2 for count in distinct),
        mean_reward=sum(every) / len(every) if every else None,
        distinct_rewards=dict(sorted(Counter(distinct).items())),
        methods=dict(sorted(Counter(one.method for one in lists).items())),
        rewards=dict(sorted(Counter(every).items())),
    )


def audit_candidates(
    recording: Recording,
    *,
    mode: RewardMode,
    limits: CandidateLimits | None = None,
    name: str | None = None,
) -> CandidateAudit:
    """Audit recorded candidates."""
    figures = measure_candidates(recording, mode=mode)
    found = [
        *_check_figures(figures, limits or CandidateLimits(), name),
        *_check_pools(recording.queries),
        *_check_results(recording),
    ]
    findings = tuple(sorted(found, key=lambda finding: finding.level != "error"))
    return CandidateAudit(figures, findings, recording.conditions.correct, recording.digest)


def write_candidate_audit(audit: CandidateAudit, folder: Path) -> CandidateAudit:
    """Write ``candidates.json`` and ``candidates.md`` into ``folder``; return the audit."""
    findings = [finding.to_json() for finding in audit.findings]
    told = {"figures": asdict(audit.figures), "findings": findings}
    told |= {"correct": audit.correct, "digest": audit.digest}
    write_json(folder / "candidates.json", told)
    write_text(folder / "candidates.md", render_candidate_audit(audit))
    return audit


def render_candidate_audit(audit: CandidateAudit) -> str:
    """Return the audit as Markdown."""
    figures = audit.figures
    num_scored = figures.num_lists - figures.num_failed
    rows = [
        ("queries with a positive list", figures.num_positive_queries, figures.num_queries),
        ("positive lists", figures.num_positive_lists, num_scored),
        ("queries whose rewards are all equal", figures.num_equal_queries, figures.num_queries),
        ("failed evaluations", figures.num_failed, figures.num_lists),
    ]
    mean = "none" if figures.mean_reward is None else f"{figures.mean_reward:.4f}"
    told = [(name, _render_share(count, whole)) for name, count, whole in rows]
    told += [
        ("mean reward", mean),
        ("queries by number of different rewards", _render_counts(figures.distinct_rewards)),
        ("lists by reward", _render_counts({f"{k:.4g}": n for k, n in figures.rewards.items()})),
        ("lists by method", _render_counts(figures.methods)),
        ("a list is positive where", audit.correct),
        ("digest of the recording", audit.digest),
    ]
    findings = [f"- **{one.level}** `{one.name}`: {one.message}" for one in audit.findings]
    table = ["| figure | value |", "|---|---|", *(f"| {name} | {value} |" for name, value in told)]
    return "\n".join(
        ["# Recorded candidates", "", *(findings or ["Nothing was found."]), "", *table, ""]
    )


def _render_share(count: int, whole: int) -> str:
    return f"{count}/{whole}" + (f" ({count / whole:.1%})" if whole else "")


def _render_counts(counts: Mapping[Any, int]) -> str:
    return ", ".join(f"{name}: {count}" for name, count in counts.items()) or "none"


def _check_figures(
    figures: CandidateFigures, limits: CandidateLimits, name: str | None
) -> Iterator[Finding]:
    positive = figures.num_positive_queries
    whole = figures.num_queries
    if positive < max(limits.min_positive_queries, _FEW_POSITIVE) * whole:
        yield Finding(
            "error" if positive < limits.min_positive_queries * whole else "warning",
            "few_positive_queries",
            f"{f'{name}: only' if name else 'Only'} {_render_share(positive, whole)} queries have "
            f"a positive list. {_USABLE.format(least=limits.min_positive_queries)}",
            whole - positive,
        )
    equal = figures.num_equal_queries
    if equal > min(limits.max_equal_queries, _MANY_EQUAL) * whole:
        yield Finding(
            "error" if equal > limits.max_equal_queries * whole else "warning",
            "equal_rewards",
            f"All lists of {_render_share(equal, whole)} queries have the same reward: GRPO learns "
            "nothing from them.",
            equal,
        )
    failed = figures.num_failed
    if failed:
        yield Finding(
            "error" if failed > limits.max_failed * figures.num_lists else "warning",
            "failed_evaluations",
            f"The evaluation of {_render_share(failed, figures.num_lists)} lists failed.",
            failed,
        )


def _check_pools(queries: Sequence[RecordedQuery]) -> Iterator[Finding]:
    own = [query.query_id for query in queries if query.query_id in _list_ids(query)]
    yield from report_places(
        "error", "query_in_own_pool", "{count} queries may be their own demonstration.", own
    )
    missing = [query.query_id for query in queries if query.pool is None]
    yield from report_places(
        "warning",
        "pools_not_recorded",
        "The pools of {count} queries were not recorded: training needs them.",
        missing,
    )
    sizes = Counter(len(query.pool) for query in queries if query.pool is not None)
    if len(sizes) > 1:
        message = f"Pools have different sizes: {_render_counts(dict(sorted(sizes.items())))}."
        yield Finding("warning", "pool_sizes", message, sizes.total() - max(sizes.values()))


def _list_ids(query: RecordedQuery) -> set[str]:
    ids = [item for one in query.candidates for item in one.ids]
    return {str(item) for item in (*(query.pool or ()), *ids)}


def _check_results(recording: Recording) -> Iterator[Finding]:
    scored = [
        (query, one)
        for query in recording.queries
        for one in query.candidates
        if one.accuracy is not None
    ]
    yield from report_places(
        "warning",
        "scored_otherwise",
        f"{{count}} lists were not scored by the official evaluation ({', '.join(OFFICIAL)}).",
        [_place(query, one) for query, one in scored if one.scored_by not in OFFICIAL],
    )
    yield from report_places(
        "warning",
        "accuracy_differs",
        "{count} lists have another accuracy than the official one of their answer.",
        [_place(query, one) for query, one in scored if _has_other_accuracy(query, one)],
    )
    yield from report_places(
        "warning",
        "correct_differs",
        f"{{count}} lists were recorded as correct by another rule than "
        f"{recording.conditions.correct}, which holds here.",
        [_place(query, one) for query, one in scored if _is_judged_otherwise(recording, one)],
    )


def _place(query: RecordedQuery, one: Candidate) -> str:
    return f"query {query.query_id} list {list(one.ids)}"


def _is_judged_otherwise(recording: Recording, one: Candidate) -> bool:
    values = recording.read_values(one)
    return one.correct is not None and values is not None and one.correct != bool(values[0])


def _has_other_accuracy(query: RecordedQuery, one: Candidate) -> bool:
    """Say whether neither the official script nor its cleaned form gives this accuracy."""
    if one.answer is None or one.accuracy is None or len(query.answers) < 2:
        return False
    item = make_example(
        [Message("user", query.question)], cluster="", fields={"answers": list(query.answers)}
    )
    rewards = (VqaAccuracy(), VqaAccuracy(as_published=True))
    found = [reward(item, Completion(one.answer)).value for reward in rewards]
    return all(value is None or abs(value - one.accuracy) > 1e-6 for value in found)
