"""Alignment and entailment of reasons with what is shown, and probes."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import product
from math import comb
from pathlib import Path

import made_predictions
import pytest
from hypothesis import given
from hypothesis import strategies as st
from plan_keys import read_config
from statement_sets import make_row
from tables import read_tables

from groupwise.core import (
    Completion,
    DataError,
    Score,
    read_jsonl,
)
from groupwise.data.examples import read_examples
from groupwise.evaluation.metrics import compute_metrics
from groupwise.evaluation.predictions import Policies, RunPolicy
from groupwise.inference.model import Sampling
from groupwise.inference.settings import ModelSource
from groupwise.models.tiny import write_tiny_policy
from groupwise.rewards import BoxParser, LabelParser, RewardCase
from groupwise.rewards.audit.audit import audit_rewards
from groupwise_drawn.relations import INVERSES, LANGUAGES, plan_pairs, write_claim
from groupwise_recipes.visual_reasoning.answers import PARSER
from groupwise_recipes.visual_reasoning.auditing import make_case
from groupwise_recipes.visual_reasoning.boxes import Box
from groupwise_recipes.visual_reasoning.config import (
    LABELS,
    AlignmentSettings,
    choose_alignment,
)
from groupwise_recipes.visual_reasoning.entailment import judge_entailment
from groupwise_recipes.visual_reasoning.judging import RuleEntailment, open_model_judge
from groupwise_recipes.visual_reasoning.measuring import (
    Alignment,
    complete_predictions,
    mark_silent,
)
from groupwise_recipes.visual_reasoning.probe import (
    check_probe,
    find_opposite_captions,
    find_shared_pictures,
    fit_probe,
)
from groupwise_recipes.visual_reasoning.reasoning import write_reasoning
from groupwise_recipes.visual_reasoning.sections import make_sections
from groupwise_recipes.visual_reasoning.task import TASK
from groupwise_recipes.visual_reasoning.teaching import write_target

TABLES = read_tables(__file__)
MODEL = ("alignment.judge=model", "alignment.model.model=some/judge")
REAL = ("data.drawn=null", "data.rows.path=somewhere")


def configure(*overrides):
    small = ("data.drawn.num_pairs=24", "data.drawn.num_test_pairs=6")
    return read_config("visual_reasoning", "grounding", *small, *overrides)


@pytest.fixture(scope="module")
def splits(prepared):
    return {name: read_examples(prepared / f"{name}.jsonl") for name in ("train", "test")}


def make_policies(targets="words"):
    def make(name, before=None, **more):
        kind = "trained" if before else "prompted"
        named = {"name": name, "title": name, "title_zh": name}
        return RunPolicy(**named, kind=kind, trained_from=before, **more)

    base = replace(make("majority"), kind="baseline")
    trained = [make("sft", "prompt", step="sft"), make("sft_control", "sft", step="sft_control")]
    listed = (base, make("prompt"), *trained, make("grpo", "sft", step="grpo"))
    return mark_silent(listed, targets)


def predict(example, policy, text):
    found = PARSER.parse(text)
    more = {"cluster": example.cluster, "reason": found.reason, "text": text}
    return made_predictions.predict(example.id, policy, str(example.label), found.label, **more)


def tear(example):
    """Return the sound reasoning with the other answer."""
    label = str(example.label)
    [other] = {*LABELS} - {label}
    return write_target(example, "words").replace(f"<answer>{label}", f"<answer>{other}")


def answer(example, number):
    return [
        write_target(example, "words"),
        tear(example),
        "<think>It is a sunny day.</think><answer>True</answer>",
        "<think>The statement is true.</think><answer>True</answer>",
        "<think>Whatever, that is wrong somehow.</think><answer>True</answer>",
        "no answer",
    ][number % 6]


def report(examples, found, targets="words", *, judge=None):
    policies = make_policies(targets)
    known = {example.id: example for example in examples}
    whole = complete_predictions(known, found, policies=policies, judge=judge or RuleEntailment())
    metrics = compute_metrics(whole, labels=LABELS)
    return make_sections(
        whole, metrics, policies=Policies(tuple(policies)), judge=AlignmentSettings()
    )


def read_table(section):
    [table] = section.tables
    return {str(r[0]): dict(zip(table.head[1:], map(str, r[1:]), strict=True)) for r in table.rows}


def test_every_answer_of_an_arm_is_in_one_place(splits):
    test = splits["test"]
    found = [predict(one, "sft", answer(one, n)) for n, one in enumerate(test)]
    rows = read_table(report(test, found)[0])["sft"]
    assert rows.pop("Accuracy (95 %)").startswith("33.3")
    assert rows.pop("Aligned of judged (95 %)").startswith("25.0")
    assert rows == TABLES["every_answer_of_an_arm_is_in_one_place"]


@pytest.mark.parametrize("language", ["en", pytest.param("zh", marks=pytest.mark.slow)])
def test_a_model_that_cannot_judge_gives_no_verdict_and_is_counted(splits, tmp_path, language):
    """One in this process, with random weights, asked three times about each answer."""
    model = write_tiny_policy("tiny-qwen2", tmp_path / "model")
    usual = AlignmentSettings().settings
    retry = usual.retry.model_copy(update={"base_delay_s": 0.001})
    settings = AlignmentSettings(
        judge="model",
        model=ModelSource(model=str(model)),
        language=language,
        sampling=Sampling(max_new_tokens=8, temperature=0.3),
        settings=usual.model_copy(update={"retry": retry}),
    )
    judge, test = open_model_judge(settings, tmp_path), splits["test"][:4]
    found = [predict(one, "sft", answer(one, n)) for n, one in enumerate(test)]
    rows = read_table(report(test, found, judge=judge)[0])["sft"]
    shown = [rows[name] for name in ("Aligned of judged (95 %)", "Judged", "Without a verdict")]
    assert shown == ["0 / 0", "0", "4"]
    told = judge.report()
    assert (told["num_questions"], told["num_calls"], told["no_verdict_rate"]) == (4, 12, 1.0)


def test_arms_without_reasoning_have_no_alignment(splits):
    test = splits["test"]
    spoken = ("sft", "sft_control", "grpo")
    found = [predict(one, name, write_target(one, "words")) for name in spoken for one in test]
    found += [replace(predict(one, "majority", ""), predicted="True", reason="") for one in test]
    rows = read_table(report(test, found)[0])
    shown = {name: set(list(cells.values())[1:]) for name, cells in rows.items()}
    assert shown["majority"] == shown["sft_control"] == {"–"}
    assert shown["prompt"] == {"?"}
    assert not shown["sft"] & {"–", "?"}
    assert not shown["grpo"] & {"–", "?"}
    for name in ("sft", "sft_control", "grpo"):
        assert rows[name]["Accuracy (95 %)"].startswith("100.0")
    taught = read_table(report(test, found, "answer")[0])
    shown = {name: set(list(cells.values())[1:]) for name, cells in taught.items()}
    assert shown["sft"] == shown["sft_control"] == shown["grpo"] == {"–"}


def test_nothing_of_a_silent_arm_is_measured(splits):
    test = splits["test"]
    known = {example.id: example for example in test}
    found = [predict(one, name, tear(one)) for name in ("sft", "sft_control") for one in test]
    whole = complete_predictions(known, found, policies=make_policies(), judge=RuleEntailment())
    measured = {one.name for one in compute_metrics(whole, labels=LABELS)}
    assert "sft/alignment" in measured
    assert "sft_control/alignment" not in measured
    assert not any("entailment" in one.fields for one in whole if one.policy == "sft_control")


def test_both_languages_say_the_same(splits):
    test = splits["test"]
    english, chinese = report(test, [predict(one, "sft", tear(one)) for one in test])
    assert (english.language, chinese.language) == ("en", "zh")
    assert english.tables[0].rows == chinese.tables[0].rows
    assert "12 items of the split test" in english.text
    assert "12 个题目" in chinese.text


@pytest.mark.parametrize(
    ("overrides", "said"), [((), "by rules for drawn scenes, no model"), (MODEL, "some/judge")]
)
def test_a_dry_run_says_what_judges(overrides, said):
    assert ("alignment", said) in TASK.estimate(configure(*overrides)).facts


def load_real(*overrides):
    return read_config("visual_reasoning", "grounding", *REAL, *overrides)


def test_rules_are_no_judge_of_real_text():
    assert choose_alignment(load_real()) is None
    with pytest.raises(Exception, match="reads drawn scenes alone"):
        load_real("alignment.judge=rule")
    with pytest.raises(Exception, match=r"rewards\.alignment needs a judge"):
        load_real("rewards.alignment=0.1")
    with pytest.raises(Exception, match="can outvote the truth"):
        make_case(load_real(*MODEL, "rewards.alignment=0.6"), [])


WEIGHTS = ("rewards.accuracy=0.6", "rewards.box_iou=0", "rewards.alignment=0.4")


@pytest.mark.parametrize("judge", [(), pytest.param(MODEL, marks=pytest.mark.slow)])
def test_the_rewards_of_the_study_pass(splits, judge):
    audit = audit_rewards(make_case(configure(*WEIGHTS, *judge), splits["train"]))
    assert [(one.name, one.where[:2]) for one in audit.errors] == []
    names = {row.name for row in audit.rows}
    assert ("reward/judge-obeys-injection" in names) == bool(judge)


class AlignmentParser(LabelParser):
    """Counts an answer as the measure ``alignment`` does."""

    def measure(self, example, text):
        score = Alignment(RuleEntailment())(example, Completion(text))
        return None if score.invalid else score.value


@dataclass
class Changed:
    """The reward of alignment that is stricter or laxer about some answers."""

    changes: Mapping[str, float]
    kind = "other"
    name = "alignment"

    def __call__(self, example, completion):
        score = Alignment(RuleEntailment())(example, completion)
        found = next((v for mark, v in self.changes.items() if mark in completion.text), None)
        return score if found is None else Score(found)


def audit_alignment(examples, reward):
    """Return the errors where what aligns is right for the metric and what is torn is wrong."""
    case = RewardCase(
        rewards=reward,
        examples=examples,
        parser=AlignmentParser(tags=PARSER.tags, labels=PARSER.labels),
        write_answer=lambda one, label: (
            write_target(one, "words") if label == one.label else tear(one)
        ),
    )
    return {finding.name for finding in audit_rewards(case).errors}


@pytest.mark.slow
def test_a_reward_of_alignment_that_is_not_its_measure_is_refused(splits):
    train = splits["train"]
    both = {"reward/stricter-than-metric", "reward/laxer-than-metric"}
    assert not audit_alignment(train, Alignment(RuleEntailment())) & both
    assert audit_alignment(train, Changed({"<answer>true": 0.0})) & both == {
        "reward/stricter-than-metric"
    }
    assert audit_alignment(train, Changed({"</answer>\nConfidence": 1.0})) & both == {
        "reward/laxer-than-metric"
    }


def statement(number, text, label, relation="on"):
    return make_row(number, text, label, cluster=f"picture {number}", relation=relation)


def make_rows(told):
    return [statement(n, *one) for n, one in enumerate(told)]


def test_the_majority_of_a_relation_and_then_of_all_and_a_caption_falls_back_to_it():
    train = make_rows([("a", True, "on"), ("b", True, "on"), ("c", False, "on")] * 2)
    train += make_rows([("d", False, "under"), ("e", True, "near"), ("f", False, "near")])
    probe = fit_probe(train, "relation")
    asked = make_rows([("x", True, "on"), ("x", True, "under"), ("x", True, "near")])
    assert [probe.predict(row) for row in asked] == ["True", "False", "True"]
    assert probe.predict(statement(9, "x", True, "beyond")) == "True"
    assert probe.score(train).num_right == 4 + 1 + 1
    train = make_rows([("a", False, "on"), ("b", True, "on"), ("c", True, "on")])
    train += make_rows([(text, False, "under") for text in "defg"])
    probe = fit_probe(train, "caption")
    asked = make_rows([("a", True, "on"), ("x", True, "on")])
    assert [probe.predict(row) for row in asked] == ["False", "True"]
    for rows, scored in (([], []), ([statement(1, "a", True)], [])):
        with pytest.raises(DataError, match="no rows to probe"):
            fit_probe(rows, "relation").score(scored)


@pytest.mark.parametrize(("right", "side"), [(60, "above"), (40, None), (20, "below")])
def test_the_test_is_exact_and_two_sided(right, side):
    """The other label of a caption that recurs is as good a sign as the same label."""
    rows = [statement(n, "a", n < right) for n in range(80)]
    score = fit_probe([statement(99, "a", True)], "caption").score(rows)
    assert score.accuracy == right / 80
    outside = sum(comb(80, n) for n in range(81) if comb(80, n) <= comb(80, right))
    assert score.p_value == pytest.approx(outside / 2**80)
    names = [finding.name for finding in check_probe(score, "caption")]
    assert names == ([f"text_probe_{side}_chance"] if side else [])


def test_captions_with_the_opposite_label_are_counted():
    train = make_rows([("a", True, "on"), ("a", False, "on"), ("b", True, "on")])
    test = make_rows([("a", True, "on"), ("b", True, "on"), ("b", False, "on"), ("c", True, "on")])
    (finding,) = find_opposite_captions(train, test)
    assert (finding.count, finding.where) == (2, ("0", "2"))
    assert find_opposite_captions(train, test[3:]) == []


def test_shared_pictures_are_told_for_each_pair_of_splits():
    rows = [statement(n, "a", True) for n in range(4)]
    splits = {"train": rows[:3], "test": [*rows[1:3], rows[1]], "validation": rows[2:]}
    found = find_shared_pictures(splits)
    assert [finding.count for finding in found] == [2, 1, 1]
    assert {finding.level for finding in found} == {"error"}
    assert found[0].message == "2 pictures stand in train and in test."
    assert found[0].where == ("picture 1", "picture 2")
    assert find_shared_pictures({"train": rows[:1], "test": rows[1:]}) == []


SCENES = [scene for pair in plan_pairs(60, seed=2, split="train") for scene in pair]


def list_boxes(scene, language):
    return [Box(*thing.box, thing.name(language)) for thing in (scene.subject, scene.other)]


def write(scene, language, *, with_boxes=True):
    subject, other = list_boxes(scene, language)
    frame = (scene.side, scene.side) if with_boxes else None
    return write_reasoning(
        subject, scene.relation, other, is_true=scene.label, frame=frame, language=language
    )


@pytest.mark.parametrize(("language", "with_boxes"), list(product(LANGUAGES, (True, False))))
def test_written_reasoning_entails_its_answer_and_contradicts_the_other(language, with_boxes):
    for scene in SCENES:
        statement = scene.write_caption(language)
        text = write(scene, language, with_boxes=with_boxes)
        assert judge_entailment(statement, text, answer=scene.label).aligns
        other = judge_entailment(statement, text, answer=not scene.label)
        assert (other.aligns, other.type) == (False, "contradiction")
        if with_boxes:
            read = BoxParser(words=True).parse(text).value
            # From left to right, whichever the caption names first.
            boxes = sorted(list_boxes(scene, language), key=lambda box: box.x1 + box.x2)
            assert [*read] == boxes


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_finding_against_the_conclusion_or_the_boxes_is_a_contradiction(language):
    for scene in SCENES:
        statement = scene.write_caption(language)
        names = scene.subject.name(language), scene.other.name(language)
        found = scene.relation if scene.label else INVERSES[scene.relation]
        right = write_claim(names[0], found, names[1], language)
        wrong = write_claim(names[1], found, names[0], language)
        text = write(scene, language)
        assert right in text
        torn = [text.replace(right, wrong), f"{wrong} {text}", f"{text} {wrong}"]
        for reasoning, answer in product(torn, (True, False)):
            assert judge_entailment(statement, reasoning, answer=answer).type == "contradiction"


STATEMENT = "The red ball is left of the chair."


@pytest.mark.parametrize(("reasoning", "answer", "fault"), TABLES["cases"])
def test_cases_of_each_kind(reasoning, answer, fault):
    verdict = judge_entailment(STATEMENT, reasoning, answer=answer)
    assert (verdict.aligns, verdict.type) == (fault is None, fault)
    assert verdict.why


@pytest.mark.parametrize(("reasoning", "is_true"), TABLES["read"])
def test_free_words_that_are_read(reasoning, is_true):
    """With them stands whether by them the statement is true."""
    assert judge_entailment(STATEMENT, reasoning, answer=is_true).aligns
    assert judge_entailment(STATEMENT, reasoning, answer=not is_true).type == "contradiction"


@pytest.mark.parametrize("reasoning", TABLES["not_read"])
def test_what_is_not_understood_has_no_verdict(reasoning):
    for answer in (True, False):
        verdict = judge_entailment(STATEMENT, reasoning, answer=answer)
        assert (verdict.aligns, verdict.type) == (None, None)


WORDS = "The ball;the chair;it;is;not;left of;on the right;further left;no;x = 30;than;if;wait"
WORDS += ";the statement;true;wrong;and;but;its;one;neither;has the smaller x;covers;.;,;?;[1,2,3,4"


@given(st.lists(st.sampled_from(WORDS.split(";")), max_size=25).map(" ".join))
def test_no_text_entails_both_answers(text):
    verdicts = [judge_entailment(STATEMENT, text, answer=answer) for answer in (True, False)]
    assert not all(one.aligns for one in verdicts)
    assert all((one.aligns is False) == (one.type is not None) for one in verdicts)
    if any(one.aligns for one in verdicts):
        assert {one.type for one in verdicts} == {None, "contradiction"}


@pytest.mark.parametrize(
    ("name", "num_cases", "num_found", "num_aligned"),
    TABLES["cases_of_people_who_had_not_seen_the_judge"],
)
def test_cases_of_people_who_had_not_seen_the_judge(name, num_cases, num_found, num_aligned):
    """The first four were read to extend the judge: ``entailment`` tells what it found at first."""
    cases = list(read_jsonl(Path(__file__).parent / f"{name}.jsonl"))
    verdicts = [
        (one["type"], judge_entailment(one["statement"], one["reasoning"], answer=one["answer"]))
        for one in cases
    ]
    assert num_cases.items() <= Counter(fault for fault, _ in verdicts).items()
    assert not [one for fault, one in verdicts if fault and one.aligns]
    false_alarms = [one for fault, one in verdicts if not fault and one.type]
    assert len(false_alarms) <= 0.01 * num_cases[None]
    found = Counter((fault, one.type) for fault, one in verdicts if one.aligns is not None)
    assert found["contradiction", "contradiction"] >= num_found
    assert found[None, None] >= num_aligned


@pytest.mark.parametrize(("statement", "reasoning", "answer", "fault"), TABLES["chinese"])
def test_chinese_and_what_covers_what(statement, reasoning, answer, fault):
    assert judge_entailment(statement, reasoning, answer=answer).type == fault


@pytest.mark.parametrize("statement", ["A red ball.", "The ball is not left of the chair."])
def test_a_statement_that_claims_no_relation_is_refused(statement):
    with pytest.raises(DataError, match="no relation of two things is claimed; got"):
        judge_entailment(statement, "It is red.", answer=True)
