"""What training fixed and what it broke: the answers before and after, item by item."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from groupwise.evaluation import page
from groupwise.evaluation.page import Block, Part, Words, numbers
from groupwise.evaluation.policies import Policies
from groupwise.evaluation.predictions import ACCURACY, MAX_TEXT, REWARD, Measure, Prediction
from groupwise.evaluation.report.content import Report
from groupwise.evaluation.report.files import RunFiles
from groupwise.evaluation.report.items import cut_answer, show_item

NUM_SHOWN = 3
KINDS = {(False, True): "fixed", (True, False): "broken"} | {
    (True, True): "right_twice",
    (False, False): "wrong_twice",
}
"""What became of an item, by whether it was right before and whether it is right after."""
Pair = tuple[Prediction, Prediction]


@dataclass(frozen=True, slots=True)
class Changes:
    """The answers of a policy and of the one it was trained from, to the items that both have.

    Attributes:
        before: the policy that training started from.
        after: the policy.
        pairs: both answers to each item by ``KINDS``, in the order of ids, which are digests.
    """

    before: str
    after: str
    pairs: Mapping[str, Sequence[Pair]]


def find_changes(
    by_policy: Mapping[str, Sequence[Prediction]], policies: Policies
) -> Changes | None:
    """Return what became of each item; None where the run does not have both policies' answers."""
    after = policies.choose_last(by_policy) if by_policy else ""
    before = policies.find(after).trained_from
    if before is None or before not in by_policy:
        return None
    earlier = {one.example_id: one for one in by_policy[before]}
    later = {one.example_id: one for one in by_policy[after]}
    pairs: dict[str, list[Pair]] = {kind: [] for kind in KINDS.values()}
    for item in sorted(earlier.keys() & later.keys()):
        pair = earlier[item], later[item]
        pairs[KINDS[pair[0].is_correct, pair[1].is_correct]].append(pair)
    return Changes(before, after, pairs)


def show_changes(report: Report, words: Words) -> tuple[Part, ...]:
    """Return counts of what became of all items, and a few that were fixed or broken."""
    found = find_changes(report.answers, report.files.policies)
    if found is None:
        return ()
    list_blocks = _list_blocks if report.files.headline is ACCURACY else _list_scored
    return (Part("changes", words.label("changes"), tuple(list_blocks(found, report, words))),)


def _list_scored(found: Changes, report: Report, words: Words) -> Iterator[Block]:
    """Yield each measure before and after, and a few answers of both that nobody chose.

    What was not rewarded shows what the policy did for its reward.
    """
    files = report.files
    after = files.policies.find(found.after)
    titles = {"before": words.title_policy(found.before), "after": words.title_policy(found.after)}
    pairs = sorted((p for ps in found.pairs.values() for p in ps), key=lambda p: p[0].example_id)
    duration_s = files.durations.get(after.step or "")
    yield page.Paragraph(
        words.label(
            "scored_lead",
            **titles,
            num=len(pairs),
            split=report.split,
            most=NUM_SHOWN,
            samples=numbers.format_count(int(after.budget.get("num_samples", 0))),
            minutes=page.DASH if duration_s is None else f"{duration_s / 60:.1f}",
        )
    )
    log = files.logs.get(after.step or "")
    paid = {REWARD.name, *(log.list_parts() if log else ())}
    both = [report.main.get(name, {}) for name in (found.before, found.after)]
    yield page.Table(
        "",
        (words.label("measure"), titles["before"], titles["after"], words.label("is_rewarded")),
        tuple(
            (
                words.title_measure(one),
                *(page.show_metric(measures.get(one.name)) for measures in both),
                words.label("rewarded_yes" if one.name in paid else "rewarded_no"),
            )
            for one in files.measures
            if one.name in both[-1]
        ),
    )
    shown = (_show_scored(pair, report, words) for pair in pairs[:NUM_SHOWN])
    yield page.Cards(tuple(shown))


def _is_good(one: Prediction, other: Prediction, headline: Measure) -> bool:
    """Return whether an answer has the best value there is, or a better one than the other."""
    sign = 1 if headline.is_higher_better else -1
    best = max(0, sign)
    values = [sign * found.scores.get(headline.name, 1 - best) for found in (one, other)]
    return values[0] == sign * best or values[0] > values[1]


def _show_scored(pair: Pair, report: Report, words: Words) -> page.Card:
    said, pills = list[str](), list[tuple[str, str]]()
    for one, other in (pair, pair[::-1]):
        policy = words.title_policy(one.policy)
        scores = [
            f"{words.name_measure(measure)} {numbers.format_share(one.scores[measure.name])}"
            for measure in report.files.measures
            if measure.name in one.scores
        ]
        is_good = _is_good(one, other, report.files.headline)
        pills.append(("truth" if is_good else "wrong", f"{policy}: {words.join(scores)}"))
        said.append(
            words.label("policy_said", policy=policy, text=page.shorten(one.text, MAX_TEXT))
        )
    return show_item(pair[1], "; ".join(said), words, pills=pills, files=report.files)


def _list_blocks(found: Changes, report: Report, words: Words) -> Iterator[Block]:
    num = sum(map(len, found.pairs.values()))
    titles = {"before": words.title_policy(found.before), "after": words.title_policy(found.after)}
    numbered = {"num": num, "split": report.split, "most": NUM_SHOWN}
    yield page.Paragraph(words.label("changes_lead", **titles, **numbered))
    rows = tuple(
        (
            words.label(kind),
            numbers.format_count(len(pairs)),
            numbers.format_share(len(pairs) / num if num else None),
        )
        for kind, pairs in found.pairs.items()
    )
    yield page.Table("", words.labels("before_after", "n_items", "share"), rows)
    for kind in ("fixed", "broken"):
        if pairs := found.pairs[kind]:
            yield page.Heading(words.label(kind))
            yield page.Cards(
                tuple(_show_pair(one, report.files, words) for one in pairs[:NUM_SHOWN])
            )


def _show_pair(pair: Pair, files: RunFiles, words: Words) -> page.Card:
    said: list[str] = []
    pills: list[tuple[str, str]] = []
    for one in pair:
        policy = words.title_policy(one.policy)
        answer = words.label("invalid_answer") if one.predicted is None else one.predicted
        text = words.label("policy_answered", policy=policy, answer=cut_answer(answer))
        pills.append(("truth" if one.is_correct else "wrong", text))
        said.append(
            words.label("policy_said", policy=policy, text=page.shorten(one.text, MAX_TEXT))
        )
    return show_item(pair[1], "; ".join(said), words, pills=pills, files=files)
