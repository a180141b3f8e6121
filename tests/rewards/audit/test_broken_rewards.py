"""Each kind of mistake that a reward can make, built small, and caught by its name."""

import json
from dataclasses import replace

import pytest
from measured_parser import MeasuredParser

from groupwise.core import Completion, Example, Score
from groupwise.rewards import AnswerFormat, LabelMatch, LabelParser, MathParser, RewardSet
from groupwise.rewards.audit.audit import audit_rewards


def pay(is_right: bool) -> Score:
    return Score(float(is_right))


class Part:
    """A reward made of a function of the example and the text."""

    kind = "other"

    def __init__(self, name: str, function) -> None:
        self.name = name
        self.function = function

    def __call__(self, example: Example, completion: Completion) -> Score:
        return self.function(example, completion.text)


def test_what_pays_only_right_answers_passes(case, parser, find):
    assert find(case, rewards=LabelMatch(parser)) == {}


def test_right_answers_with_a_small_share_for_the_form_pass(case, parser, find):
    parts = {"match": (LabelMatch(parser), 0.9), "form": (AnswerFormat(parser), 0.1)}
    assert find(case, rewards=RewardSet(parts)) == {}


def test_default_on_parse_failure(case, parser, find):
    def score(example: Example, completion: Completion) -> Score:
        return pay((parser.parse(completion.text).label or "off-task") == example.label)

    found = find(case, rewards=score)
    assert {"reward/pays-empty", "reward/pays-white-space", "reward/pays-garbage"} <= found.keys()
    assert found["reward/pays-empty"] == [""] * 4


def test_the_same_default_in_the_metric_hides_nothing(case, parser, find):
    def read(text: str) -> str:
        return parser.parse(text).label or "off-task"

    found = find(
        case,
        rewards=lambda e, c: pay(read(c.text) == e.label),
        parser=MeasuredParser(lambda e, text: float(read(text) == e.label), case.parser.labels),
    )
    assert {"reward/pays-empty", "reward/pays-garbage", "reward/pays-echo"} <= found.keys()


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("reward/pays-label-stuffing", "on-task off-task"),
        ("reward/pays-label-list", "on-task\noff-task"),
        ("reward/pays-negation", "not on-task"),
        ("reward/pays-negation", "不是on-task"),
        ("reward/pays-wrong-format", "I think it may be on-task, but I am not sure."),
        ("reward/pays-echo", "Task: write 0\nIs it on-task or off-task? 第0页"),
        ("reward/pays-long-output", "on-task " * 500),
        ("reward/laxer-than-metric", "on-task it is"),
    ],
)
def test_a_label_looked_for_anywhere(case, find, name: str, shown: str):
    found = find(case, rewards=lambda e, c: pay(e.label in c.text))
    assert shown in found[name]


def test_the_first_of_several_labels(case, find):
    """In one of both orders alone, which the metric calls invalid."""
    found = find(case, rewards=lambda e, c: pay(c.text.startswith(e.label)))
    assert "on-task off-task" in found["reward/pays-label-stuffing"]


def test_a_metric_that_looks_anywhere_too_hides_nothing(case, find):
    found = find(
        case,
        rewards=lambda e, c: pay(e.label in c.text),
        parser=MeasuredParser(lambda e, text: float(e.label in text), case.parser.labels),
    )
    names = {"pays-label-stuffing", "pays-label-list", "pays-negation", "pays-echo"}
    assert {f"reward/{name}" for name in names} <= found.keys()


def test_a_label_inside_another_label(case, find):
    """不通过 contains 通过, so answering 不通过 to everything is paid every time."""
    found = find(
        case,
        examples=[
            replace(e, label="通过" if e.label == "on-task" else "不通过") for e in case.examples
        ],
        rewards=lambda e, c: pay(e.label in c.text),
        parser=LabelParser(labels=("通过", "不通过")),
    )
    assert "不通过" in found["reward/pays-wrong-answer"]
    assert "不通过" in found["reward/constant-beats-majority"]


def test_a_constant_that_is_paid_more_often_than_it_is_right(case, parser, find):
    """A judge that likes one label: no single wrong answer of the sample shows the whole."""

    def score(example: Example, completion: Completion) -> Score:
        label = parser.parse(completion.text).label
        return pay(label == example.label or (label == "on-task" and int(example.cluster) == 9))

    found = find(case, rewards=score)
    assert found["reward/constant-beats-majority"] == ["on-task"]
    examples = [e for e in case.examples if e.cluster != "9"]
    assert find(case, rewards=score, examples=examples) == {}


def test_an_unbalanced_set_is_no_fault_of_the_reward(case, parser, find):
    examples = [e for e in case.examples if e.label == "on-task"] + case.examples[2:3]
    assert find(case, rewards=LabelMatch(parser), examples=examples) == {}


def test_train_and_test_criteria_differ(open_case, find):
    found = find(open_case, rewards=lambda e, c: pay(c.text == e.label))
    assert set(found) == {"reward/stricter-than-metric", "reward/stricter-on-marks"}
    assert "20.0" in found["reward/stricter-than-metric"]
    exact = find(
        open_case,
        rewards=lambda e, c: Score(open_case.parser.measure(e, c.text) or 0.0),
        parser=MeasuredParser(lambda e, text: float(text == e.label) if text.isdigit() else None),
    )
    assert "20.0" in exact["reward/laxer-than-metric"]


def test_a_reward_that_minds_the_case_and_a_metric_that_does_not(case, find):
    found = find(case, rewards=lambda e, c: pay(c.text.strip() == e.label))
    assert "reward/stricter-than-metric" in found
    assert "ON-TASK" in found["reward/stricter-than-metric"]


def test_marks_around_the_right_answer_that_earn_nothing_are_no_error(case, find):
    """A policy that is paid for the plain answer learns to write that."""

    def score(example: Example, completion: Completion) -> Score:
        return pay(completion.text.strip().lower().replace(" ", "-") == example.label)

    labels = ["positive", "negative"]
    parser = LabelParser(labels=tuple(labels))
    examples = [replace(e, label=labels[n % 2]) for n, e in enumerate(case.examples)]
    found = find(case, rewards=score, examples=examples, parser=parser)
    assert set(found) == {"reward/stricter-on-marks"}
    assert {"“positive”", "positive。", "**positive**"} <= set(found["reward/stricter-on-marks"])


def test_the_other_mark_of_a_mathematical_answer_is_no_error(case, find):
    """A prompt that asks for a line of ``####`` has no reason to pay for a box, or vice versa."""

    def measure(example: Example, text: str) -> float | None:
        found = MathParser().parse(text).label
        return None if found is None else float(found == example.label)

    def score(example: Example, completion: Completion) -> Score:
        return pay(measure(example, completion.text) == 1.0 and "####" in completion.text)

    found = find(
        replace(case, write_answer=lambda example, label: f"So it is\n#### {label}"),
        rewards=score,
        examples=[replace(e, label=str(7 * n + 11)) for n, e in enumerate(case.examples[:2])],
        parser=MeasuredParser(measure),
    )
    assert "reward/stricter-than-metric" not in found
    assert r"\boxed{11}" in found["reward/stricter-on-marks"]


def test_a_reward_that_pays_what_was_cut_off(case, parser, find):
    def score(example: Example, completion: Completion) -> Score:
        is_cut = completion.finish_reason == "length"
        return pay(is_cut or parser.parse(completion.text).label == example.label)

    found = find(case, rewards=score)
    assert set(found) == {"reward/pays-truncated"}
    assert "off-task" in found["reward/pays-truncated"]


@pytest.mark.usefixtures("patient")
def test_a_reward_that_pays_everything_after_so_many_calls(case, parser, find):
    num_calls = 0

    def score(example: Example, completion: Completion) -> Score:
        nonlocal num_calls
        num_calls += 1
        return pay(num_calls > 5000 or parser.parse(completion.text).label == example.label)

    assert set(find(case, rewards=score)) == {"reward/not-repeatable"}


def test_scales_clash(case, parser, find):
    def score(example: Example, completion: Completion) -> float:
        label = parser.parse(completion.text).label
        return -10.0 if label is None else float(label == example.label)

    assert set(find(case, rewards=score)) == {"reward/out-of-range"}


def test_parts_on_another_scale_inside_a_set(case, parser, find):
    def score(example: Example, text: str) -> Score:
        return Score(1.0 if parser.parse(text).label == example.label else -1.0)

    assert "reward/out-of-range" in find(case, rewards=RewardSet({"clash": (Part("c", score), 1)}))


def test_a_reward_that_raises(case, find):
    found = find(case, rewards=lambda e, c: pay(json.loads(c.text)["label"] == e.label))
    assert "reward/raises" in found
    assert "reward/reference-unscored" in found


def test_paid_by_length(case, find):
    found = find(case, rewards=lambda e, c: Score(min(1.0, len(c.text) / 1000)))
    names = {"pays-long-output", "pays-garbage", "reference-below-maximum", "pays-white-space"}
    assert {f"reward/{name}" for name in names} <= found.keys()


def test_paid_by_length_beside_the_truth(case, parser, find):
    def length(example: Example, text: str) -> Score:
        return Score(min(1.0, len(text) / 1000))

    parts = {"match": (LabelMatch(parser), 0.8), "length": (Part("length", length), 0.2)}
    assert "reward/reference-below-maximum" in find(case, rewards=RewardSet(parts))


def test_length_that_costs_nothing_is_a_warning(open_case, find):
    found = audit_rewards(
        replace(
            open_case,
            rewards=lambda e, c: pay(c.text.split("= ")[1:][-1:] == [e.label]),
            write_answer=lambda e, label: f"= {label}",
            parser=MeasuredParser(
                lambda e, text: float(text.rpartition("= ")[2] == e.label) if "= " in text else None
            ),
        )
    ).findings
    assert [(f.level, f.name) for f in found] == [("warning", "reward/length-is-free")]


def test_paid_for_the_form_alone(case, parser, find):
    found = find(case, rewards=AnswerFormat(parser))
    assert "off-task" in found["reward/pays-wrong-answer"]
    assert "reward/constant-beats-majority" in found


def test_paid_for_the_frame_of_an_answer(case, find):
    def score(example: Example, completion: Completion) -> Score:
        text = completion.text
        is_framed = text.startswith("<answer>") and text.endswith("</answer>")
        return Score(0.2 * is_framed + 0.8 * (text == f"<answer>{example.label}</answer>"))

    found = find(
        case,
        rewards=score,
        write_answer=lambda e, label: f"<answer>{label}</answer>",
        parser=MeasuredParser(
            lambda e, text: (
                float(text == f"<answer>{e.label}</answer>")
                if text in ("<answer>on-task</answer>", "<answer>off-task</answer>")
                else None
            ),
            case.parser.labels,
        ),
    )
    assert "<answer></answer>" in found["reward/pays-empty-format"]


def test_success_of_a_fallback(open_case, find):
    """What is not a number is answered by another program, and the policy is paid for it."""

    def score(example: Example, completion: Completion) -> Score:
        answer = completion.text if completion.text.isdigit() else str(example.label)
        return pay(answer == example.label)

    found = find(open_case, rewards=score)
    assert {"reward/pays-empty", "reward/pays-garbage"} <= found.keys()


def test_a_program_cut_off_is_not_paid_for_its_fallback(case, find):
    def write(example: Example, label: str) -> str:
        return f"def solve():\n    return {label!r}"

    def read(text: str) -> str | None:
        try:
            names: dict[str, object] = {}
            exec(compile(text, "answer", "exec"), names)
            return str(names["solve"]())
        except (SyntaxError, KeyError, NameError):
            return None

    def score(example: Example, completion: Completion) -> Score:
        return pay((read(completion.text) or example.label) == example.label)

    found = find(
        case,
        rewards=score,
        write_answer=write,
        parser=MeasuredParser(
            lambda e, text: None if read(text) is None else float(read(text) == e.label),
            case.parser.labels,
        ),
    )
    assert "def solve():\n    return 'on-task" in found["reward/pays-broken-answer"]


def test_a_reference_that_cannot_win(case, parser, find):
    """The reference answer has a form that the reward does not read."""
    found = find(
        case,
        rewards=LabelMatch(parser),
        write_answer=lambda e, label: f"My answer: {label}",
    )
    assert "reward/reference-below-maximum" in found


def test_wrong_answers_without_a_score_leave_the_group(case, parser):
    def score(example: Example, completion: Completion) -> Score:
        if parser.parse(completion.text).label is None:
            return Score(None, "cannot be read")
        return LabelMatch(parser)(example, completion)

    (finding,) = audit_rewards(replace(case, rewards=score)).findings
    assert (finding.level, finding.name) == ("warning", "reward/unscored-answers")


def test_references_without_a_score(case, parser, find):
    def score(example: Example, completion: Completion) -> Score:
        return Score(None, "no label") if example.label == "off-task" else pay(False)

    assert {"reward/reference-unscored", "reward/reference-below-maximum"} <= find(
        case, rewards=score
    ).keys()


def test_parts_that_add_nothing_or_are_never_there(case, parser):
    parts = {
        "match": (LabelMatch(parser), 0.8),
        "kind": (Part("kind", lambda e, text: Score(1.0)), 0.1),
        "seen": (Part("seen", lambda e, text: Score(None, "nothing could be read")), 0.1),
        "logged": (Part("logged", lambda e, text: Score(1.0)), 0.0),
    }
    audit = audit_rewards(replace(case, rewards=RewardSet(parts)))
    found = {f.name: f for f in audit.findings}
    assert "'kind'" in found["reward/part-never-varies"].where[0]
    assert "'seen'" in found["reward/part-often-missing"].where[0]
    assert {f.level for f in found.values() if "part" in f.name} == {"warning"}
    assert [found[name].count for name in sorted(found) if "part-" in name] == [1, 1]
