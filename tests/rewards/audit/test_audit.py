"""What an audit is made of: its rows, names, evidence and sample."""

import json
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from groupwise.core import Completion, Example, Message, RewardError, Score, make_example
from groupwise.rewards import (
    REWARD_FINDINGS,
    LabelMatch,
    LabelParser,
    RewardCase,
    audit_rewards,
)
from groupwise.rewards.audit.case import draw_items
from groupwise.rewards.audit.criteria import write_spellings


def test_every_row_has_a_known_name_and_stands_once(case, parser):
    audit = audit_rewards(replace(case, rewards=LabelMatch(parser)))
    names = [row.name for row in audit.rows]
    assert len(set(names)) == len(names)
    assert set(names) <= set(REWARD_FINDINGS)
    assert all(row.num_tried for row in audit.rows)


def test_findings_show_the_example_the_answer_and_what_it_earned(case):
    audit = audit_rewards(replace(case, rewards=lambda e, c: Score(1.0, "always")))
    row = next(row for row in audit.rows if row.name == "reward/pays-empty")
    first = case.examples[0]
    assert (row.highest, row.num_failed, row.is_passed) == (1.0, 10, False)
    assert row.evidence[0].example_id == first.id
    assert row.make_finding().where[0] == (
        f"'' earns 1 on {first.id[:12]}: it must earn 0 (it says: 'always')"
    )


def test_errors_come_first_and_json_has_everything(case):
    audit = audit_rewards(replace(case, rewards=lambda e, c: Score(None if c.text else 0.5)))
    levels = [finding.level for finding in audit.findings]
    assert levels == sorted(levels)
    values = json.loads(json.dumps(audit.to_json()))
    assert values["num_examples"] == 10
    assert [row["name"] for row in values["rows"]] == [row.name for row in audit.rows]


def test_long_answers_are_shown_shortened(case):
    audit = audit_rewards(replace(case, rewards=lambda e, c: Score(1.0)))
    assert max(len(place) for f in audit.findings for place in f.where) < 400


def test_without_examples_nothing_can_be_audited(case):
    with pytest.raises(RewardError, match="without examples"):
        audit_rewards(replace(case, examples=[]))


def test_the_sample_takes_labels_in_turn(case):
    unlabelled = replace(case.examples[0], label=None)
    items = draw_items(replace(case, examples=[unlabelled, *case.examples]), size=4)
    assert [item.label for item in items] == ["on-task", "off-task", "on-task", "off-task"]
    assert [item.wrong for item in items] == [("off-task",), ("on-task",)] * 2


def test_other_labels_that_are_right_too_are_not_wrong_answers(open_case):
    """Two spellings of one number: each is a right answer to the other's question."""
    first, second = open_case.examples[:2]
    examples = [first, replace(second, label=f"{first.label}.0")]
    items = draw_items(replace(open_case, examples=examples))
    assert [item.wrong for item in items] == [(), ()]


@pytest.mark.usefixtures("patient")
def test_each_answer_is_scored_once_and_some_four_times_again(case, parser):
    seen: list[tuple[str, str]] = []

    def score(example: Example, completion: Completion) -> Score:
        seen.append((example.id, completion.text))
        return LabelMatch(parser)(example, completion)

    audit = audit_rewards(replace(case, rewards=score))
    counts = Counter(seen)
    assert len(counts) == audit.num_scored
    often, num_often = counts.most_common(1)[0]
    assert (often[1], sum(counts.values()) > 8000, num_often < 8000) == ("", True, True)
    del counts[often]
    assert Counter(counts.values()) == {1: len(counts) - 20, 5: 20}


@given(st.text(min_size=1, max_size=30))
def test_spellings_are_other_texts_each_once(text: str):
    spellings = list(write_spellings(text))
    assert text not in spellings
    assert len(set(spellings)) == len(spellings)


@settings(max_examples=20)
@given(
    st.lists(
        st.text("abcdefgh不是通过合格 -", min_size=1, max_size=8).map(str.strip).filter(bool),
        min_size=2,
        max_size=4,
        unique_by=str.lower,
    )
)
def test_the_shipped_reward_passes_with_any_labels(labels: list[str]):
    try:
        parser = LabelParser(labels=tuple(labels))
        written = [parser.write(label) for label in labels]
    except (ValueError, RewardError):
        return
    assert written == labels
    examples = [
        make_example([Message("user", f"Which one, {n}?")], cluster=str(n), label=label)
        for n, label in enumerate(labels)
    ]
    case = RewardCase(LabelMatch(parser), examples, parser)
    assert [(f.name, f.where) for f in audit_rewards(case).errors] == []
