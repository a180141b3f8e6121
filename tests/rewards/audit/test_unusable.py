"""Examples whose reference no answer can be held against are found before training."""

from dataclasses import replace

from groupwise.core import Completion, Example, Score
from groupwise.rewards import HumanOverride, LabelMatch, RewardSet, audit_rewards


class Picky:
    """Cannot use the label "broken", nor those that are no label at all."""

    name = "picky"
    kind = "truth"

    def __call__(self, example: Example, completion: Completion) -> Score:
        why = self.explain_unusable(example)
        return Score(None, why) if why else Score(float(completion.text == example.label))

    def explain_unusable(self, example: Example) -> str | None:
        return None if example.label in ("on-task", "off-task") else f"cannot read {example.label}"


def test_unusable_references_are_an_error_counted_by_reason(case, parser):
    labels = ["on-task", "off-task", "broken", "broken", "torn"]
    examples = [
        replace(example, label=label)
        for example, label in zip(case.examples, labels * 2, strict=True)
    ]
    rewards = RewardSet({"label": (LabelMatch(parser), 0.9), "picky": (Picky(), 0.1)})
    changed = replace(case, rewards=rewards, examples=examples)
    row = next(r for r in audit_rewards(changed).rows if r.name == "reward/unusable-example")
    assert (row.level, row.num_tried, row.num_failed) == ("error", 10, 6)
    assert [(e.example_id, e.label, e.why) for e in row.evidence[:2]] == [
        (examples[2].id, "broken", "picky: cannot read broken (4 of 10 examples)"),
        (examples[4].id, "torn", "picky: cannot read torn (2 of 10 examples)"),
    ]


def test_all_examples_are_looked_at_and_not_only_the_sample(case):
    examples = [*case.examples * 20, replace(case.examples[0], label="broken")]
    changed = replace(case, rewards=Picky(), examples=examples)
    row = next(r for r in audit_rewards(changed).rows if r.name == "reward/unusable-example")
    assert (row.num_tried, row.num_failed) == (201, 1)


def test_nothing_else_is_tried_where_no_example_can_be_used(case):
    examples = [replace(example, label="broken") for example in case.examples]
    audit = audit_rewards(replace(case, rewards=Picky(), examples=examples))
    assert [row.name for row in audit.rows] == ["reward/unusable-example"]
    assert [finding.count for finding in audit.errors] == [10]


def test_rewards_that_cannot_say_have_nothing_unusable(case, parser, find):
    assert "reward/unusable-example" not in find(case, rewards=LabelMatch(parser))


def test_a_part_without_weight_makes_nothing_unusable(case, parser):
    rewards = RewardSet({"label": (LabelMatch(parser), 1.0), "picky": (Picky(), 0.0)})
    assert rewards.explain_unusable(replace(case.examples[0], label="broken")) is None


def test_a_persons_label_is_what_has_to_be_usable(case):
    reward = HumanOverride(Picky())
    broken = replace(case.examples[0], label="broken")
    assert reward.explain_unusable(broken) is None
    assert reward.explain_unusable(replace(broken, fields={"human_label": "on-task"})) is None
    wrong = replace(case.examples[0], fields={"human_label": "torn"})
    assert reward.explain_unusable(wrong) == "cannot read torn"
