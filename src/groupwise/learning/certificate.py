"""The certificate of a candidate: what it was trained on, how it was measured, what follows.

It is a file in the round's folder. ``verify`` goes the whole way again from what the round left and
from the labels that the store still has.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from pydantic import TypeAdapter

from groupwise.core import (
    RunError,
    check_records,
    check_sealed,
    digest_file,
    digest_json,
    parse_value,
    read_json,
    seal,
    write_json,
)
from groupwise.evaluation.predictions import Prediction, read_predictions
from groupwise.evaluation.statistics import sum_clusters
from groupwise.feedback import FeedbackItem, FeedbackStore
from groupwise.feedback.sides import Sides, name_session
from groupwise.learning.judged import is_judged
from groupwise.learning.promotion import Promotion, Sessions, find_level, judge_candidate

SERVED, CANDIDATE = "prompt", "grpo"
"""Names of the two versions in a round."""
FILE = "certificate.json"


@dataclass(frozen=True, slots=True)
class UsedLabel:
    """A label that a certificate rests on.

    Attributes:
        answer: id of the served answer.
        session: of it.
        digest: of answer, person and label.
        side: whether it was learned from or tested on.
        is_judged: whether it is a judge's and no person's.
    """

    answer: str
    session: str
    digest: str
    side: str
    is_judged: bool


@dataclass(frozen=True, slots=True)
class Measured:
    """How the two versions compare on items of one kind.

    Attributes:
        num_items, num_sessions: that both were asked about.
        served, candidate: accuracy of each, the mean of sessions, in [0, 1].
    """

    num_items: int
    num_sessions: int
    served: float | None
    candidate: float | None


@dataclass(frozen=True, slots=True)
class Certificate:
    """What is known of a candidate and what it rests on.

    Attributes:
        candidate: its number in the loop, from 1.
        served: version that it is to replace.
        version: of the candidate.
        loop_level: of the whole loop.
        promotion: the verdict and the evidence.
        asked: on the sessions that test.
        held_out: on the held-out set.
        sides: how sessions were divided.
        labels: that it rests on.
        asked_file: digest of what people said in sessions that test, as the round was given it.
        findings: of the audits, by step: level, name and count.
        steps: digests of what each step of the round left.
    """

    candidate: int
    served: str
    version: str
    loop_level: float
    promotion: Promotion
    asked: Measured
    held_out: Measured
    sides: Sides
    labels: tuple[UsedLabel, ...]
    asked_file: str
    findings: Mapping[str, tuple[tuple[str, str, int], ...]]
    steps: Mapping[str, str]


_CERTIFICATE = TypeAdapter(Certificate)


def write_certificate(path: Path, certificate: Certificate) -> None:
    """Write a certificate with the digest of all that is in it."""
    write_json(path, seal(asdict(certificate)))


def read_certificate(path: Path) -> Certificate:
    """Return a certificate."""
    found = read_json(path, dict)
    check_sealed(found, path)
    found.pop("digest", None)
    return parse_value(found, _CERTIFICATE, f"{path} is no certificate")


def describe_labels(
    learned: Iterable[FeedbackItem], tested: Iterable[FeedbackItem]
) -> tuple[UsedLabel, ...]:
    """Return all labels of items, one for each person."""
    return tuple(
        UsedLabel(item.shown.id, name_session(item.shown), digest, side, is_judged(item))
        for side, items in (("teaches", learned), ("tests", tested))
        for item in items
        for digest in _digest_labels(item)
    )


def list_findings(step: Path) -> tuple[tuple[str, str, int], ...]:
    """Return level, name and count of what an audit found."""
    found = read_json(step / "audit.json", dict)["findings"]
    return tuple((one["level"], one["name"], one["count"]) for one in found)


def compare_sessions(predictions: Sequence[Prediction]) -> Sessions:
    """Return how much more often the candidate is right than the served version, by session."""
    served, candidate = _pair(predictions)
    gains = [
        float(b.is_correct) - float(a.is_correct) for a, b in zip(served, candidate, strict=True)
    ]
    if not gains:
        return Sessions(*sum_clusters([], []))
    return Sessions(*sum_clusters(gains, [one.cluster for one in served]))


def measure(predictions: Sequence[Prediction]) -> Measured:
    """Return the accuracy of both versions."""
    sides = _pair(predictions)
    num_items, sessions = len(sides[0]), {one.cluster for one in sides[0]}
    if not num_items:
        return Measured(0, 0, None, None)
    shares = [sum(one.is_correct for one in own) / num_items for own in sides]
    return Measured(num_items, len(sessions), *shares)


@dataclass(frozen=True, slots=True)
class Verification:
    """What ``verify`` found.

    Attributes:
        certificate: as it was read.
        problems: what is not as the certificate says; empty: it holds.
        num_withdrawn: labels that the store does not have any more.
    """

    certificate: Certificate
    problems: tuple[str, ...]
    num_withdrawn: int


def verify(path: Path, store: FeedbackStore | None = None) -> Verification:
    """Go the way from labels to verdict again.

    Args:
        path: of a certificate in the folder of its round.
        store: that the labels came from; None: they are not looked up.

    Raises:
        DataError: if it is no certificate, or the round's files are damaged.
        RunError: if it was changed since it was written.
    """
    found, run = read_certificate(path), path.absolute().parent.parent
    problems = [*_check_steps(found, run), *_check_sides(found)]
    if not problems:
        problems += _check_verdict(found, run)
    return Verification(found, tuple(problems), _count_withdrawn(found, store))


def _check_steps(found: Certificate, run: Path) -> list[str]:
    problems = [
        f"what the step {name} left is not what the certificate rests on"
        for name, digest in found.steps.items()
        if _digest_marker(run, name) != digest
    ]
    try:
        check_records(run)
    except RunError as error:
        problems.append(str(error))
    return problems


def _check_sides(found: Certificate) -> list[str]:
    """Return what is wrong with the division of sessions: none teaches and tests."""
    wrong = Counter(one.side for one in found.labels if found.sides.find(one.session) != one.side)
    return [
        f"{num:,} labels of the side that {side} are of the other" for side, num in wrong.items()
    ]


def _check_verdict(found: Certificate, run: Path) -> list[str]:
    answers = read_predictions(run / "decide" / "predictions.jsonl")
    others = read_predictions(run / "evaluate" / "predictions.jsonl")
    level = find_level(found.candidate, found.loop_level)
    again = judge_candidate(
        compare_sessions(answers),
        compare_sessions(others),
        level=level,
        margin=found.promotion.margin,
    )
    problems: list[str] = []
    told = (found.promotion, found.asked, found.held_out)
    if told != (again, measure(answers), measure(others)):
        problems.append(f"the answers give {again.verdict}, not what the certificate says")
    return problems


def _count_withdrawn(found: Certificate, store: FeedbackStore | None) -> int:
    if store is None:
        return 0
    items = store.list_items()
    known = {digest for item in items for digest in _digest_labels(item)}
    answers = {one.id for one in (*(item.shown for item in items), *store.list_unlabelled())}
    return sum(
        one.answer not in answers if one.is_judged else one.digest not in known
        for one in found.labels
    )


def digest_steps(run: Path, names: Iterable[str]) -> dict[str, str]:
    """Return digests of the markers of steps: these hold the digests of all that a step wrote."""
    return {name: _digest_marker(run, name) for name in names}


def _digest_marker(run: Path, name: str) -> str:
    path = run / name / "step.json"
    return digest_file(path) if path.is_file() else ""


def _digest_labels(item: FeedbackItem) -> list[str]:
    return [digest_json([item.shown.id, one.person, one.label]) for one in item.labels]


def _pair(predictions: Sequence[Prediction]) -> tuple[list[Prediction], list[Prediction]]:
    """Return the answers of both versions to the same items, in the same order."""
    served, candidate = (
        {one.example_id: one for one in predictions if one.policy == name}
        for name in (SERVED, CANDIDATE)
    )
    ids = sorted(served)
    return [served[name] for name in ids], [candidate[name] for name in ids]
