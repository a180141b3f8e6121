"""What visual_reasoning asks, and how answers are read."""

import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import astuple, replace
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plan_keys import read_config
from statement_sets import draw_two, make_row, write_vsr
from tables import read_tables

from groupwise.core import (
    Completion,
    ConfigError,
    DataError,
    Example,
    Message,
    ModelError,
    make_example,
    read_json,
    write_json,
    write_jsonl,
)
from groupwise.data.examples import read_examples
from groupwise.models.tiny import write_tiny_policy
from groupwise.rewards import BoxParser
from groupwise.run.steps import StepContext
from groupwise_recipes.visual_reasoning.answers import PARSER, QUESTION_PARSER
from groupwise_recipes.visual_reasoning.asking import (
    ask_about_row,
    prepare_rows,
    read_labelled_rows,
)
from groupwise_recipes.visual_reasoning.box_rivals import (
    choose_place,
    predict_one_place,
    predict_other_scene,
)
from groupwise_recipes.visual_reasoning.choices import choose_rule, name_longest, predict_choices
from groupwise_recipes.visual_reasoning.config import RewardWeights
from groupwise_recipes.visual_reasoning.judging import RuleEntailment
from groupwise_recipes.visual_reasoning.measuring import (
    complete_predictions,
    make_rewards,
    mark_silent,
    measure_leniently,
)
from groupwise_recipes.visual_reasoning.rows import write_rows
from groupwise_recipes.visual_reasoning.task import TASK
from groupwise_recipes.visual_reasoning.teaching import (
    make_warmup_rows,
    read_boxes,
    read_warmup,
    see_picture,
    write_answer,
    write_target,
)

TABLES = read_tables(__file__)


def configure(*overrides):
    small = ("data.drawn.num_pairs=24", "data.drawn.num_test_pairs=6")
    return read_config("visual_reasoning", "grounding", *small, *overrides)


@pytest.fixture
def test_items(prepared):
    return read_examples(prepared / "test.jsonl")


CLAIM = "The cup is left of the box."


def test_what_is_taught_earns_everything(test_items):
    rewards = make_rewards(RewardWeights(accuracy=0.4, format=0.1, box_iou=0.5))
    for example in test_items:
        target = write_target(example, "boxes")
        assert rewards.score_batch([example], [Completion(target)])[0].value == pytest.approx(1)
        assert PARSER.parse(target).label == example.label
        wrong = {"True": "False", "False": "True"}[str(example.label)]
        lie = write_answer(example, wrong, "boxes")
        assert rewards.score_batch([example], [Completion(lie)])[0].value == pytest.approx(0.6)


def test_the_reasoning_says_what_holds(test_items):
    for example in test_items:
        said = write_target(example, "words").partition("</think>")[0].removeprefix("<think>")
        assert (str(example.fields["statement"]) in said) == (example.label == "True")
        first, second = read_boxes(example)
        if " left of " in said:
            assert first.x1 + first.x2 < second.x1 + second.x2
        if " below " in said:
            assert first.y1 + first.y2 > second.y1 + second.y2


def test_pairs_stay_together_and_totals_add_up(prepared):
    splits = {
        name: read_examples(prepared / f"{name}.jsonl")
        for name in ("warmup", "train", "validation", "test")
    }
    places = defaultdict(list)
    for name, examples in splits.items():
        for example in examples:
            places[str(example.fields["pair"])].append(name)
    assert {len(found) for found in places.values()} == {2}
    assert all(len(set(found)) == 1 for found in places.values())
    assert sum(map(len, splits.values())) == read_json(prepared / "source.json", dict)["num_rows"]


def test_another_scenes_boxes_are_not_its_own(test_items):
    found = predict_other_scene(test_items)
    known = {example.id: example for example in test_items}
    whole = complete_predictions(known, found, policies=[], judge=RuleEntailment())
    assert len(whole) == len(test_items)
    assert all(one.pair and 0 <= one.scores["box_iou"] < 0.95 for one in whole)
    right = [replace(guess, text=write_target(known[guess.example_id], "boxes")) for guess in found]
    own = complete_predictions(known, right, policies=[], judge=RuleEntailment())
    perfect = {"box_iou": 1.0, "alignment": 1.0, "lenient_accuracy": 1.0}
    assert [one.scores for one in own] == [perfect] * len(own)


def test_one_place_earns_what_no_other_place_does_in_training(prepared, test_items):
    train = read_examples(prepared / "train.jsonl")
    found = predict_one_place(train, test_items)
    assert len({one.predicted for one in found}) == 1
    for example, one in zip(test_items, found, strict=True):
        boxes = [box for box in BoxParser(words=True).parse(one.text).value or () if box]
        assert len({box[:4] for box in map(astuple, boxes)}) == 1
        assert {box.label for box in boxes} == {box.label for box in read_boxes(example)}
    assert predict_one_place([], test_items) == []


SPANS = list(combinations(range(17), 2))
PLACES = np.array([(x1, y1, x2, y2) for x1, x2 in SPANS for y1, y2 in SPANS])[:, None] / 16


@settings(max_examples=20)
@given(st.lists(st.tuples(*[st.integers(0, 15)] * 4), min_size=1, max_size=6))
def test_no_place_earns_more_than_the_chosen_one(corners):
    boxes = np.array([(x, y, x + w + 1, y + h + 1) for x, y, w, h in corners]) / 32

    def earn(places):
        sides = np.minimum(places, boxes)[..., 2:] - np.maximum(places, boxes)[..., :2]
        shared = np.prod(np.clip(sides, 0, None), -1)
        areas = [np.prod(one[..., 2:] - one[..., :2], -1) for one in (places, boxes)]
        return (shared / (sum(areas) - shared)).mean(-1)

    assert earn(np.array(choose_place(boxes))) == pytest.approx(earn(PLACES).max())


def test_alignment_is_about_the_answer_that_is_given(test_items):
    weights = RewardWeights(accuracy=0, box_iou=0, alignment=1)
    aligned = make_rewards(weights, RuleEntailment())
    for example in test_items:
        wrong = {"True": "False", "False": "True"}[str(example.label)]
        lie = write_answer(example, wrong, "words")
        torn = write_target(example, "words").replace(f">{example.label}<", f">{wrong}<")
        values = [
            one.value
            for one in aligned.score_batch([example] * 2, [Completion(lie), Completion(torn)])
        ]
        assert values == [1, 0]
        none = aligned.score_batch([example], [Completion("nothing")])[0]
        assert (none.value, none.invalid) == (0, True)


def test_pictures_are_described_by_full_names_from_left_to_right(prepared):
    examples = read_warmup(prepared)
    rows = make_warmup_rows(examples, "boxes", descriptions=True)
    assert len(rows) == 2 * len(examples)
    for example, row in zip(examples, rows[len(examples) :], strict=True):
        assert row.example.pictures == example.pictures
        boxes = [box for box in BoxParser(words=True).parse(row.target).value or () if box]
        middles = [box.x1 + box.x2 for box in boxes]
        assert middles == sorted(middles)
        assert {box.label for box in boxes} == set(example.fields["things"])
        assert all(len(box.label.split()) == 2 for box in boxes)


def test_what_is_seen_tells_names_and_places_from_left_to_right(prepared):
    for example in read_warmup(prepared)[:20]:
        seen = see_picture(example)
        assert seen.picture == example.pictures[0]
        told = [[seen.facts[f"{k} {key}"] for key in ("color", "kind", "x1", "x2")] for k in (0, 1)]
        assert {f"{color} {kind}" for color, kind, *_ in told} == set(example.fields["things"])
        first, second = (int(x1) + int(x2) for *_, x1, x2 in told)
        assert first <= second + 2  # 32nds are rounded down


def test_rows_that_cannot_be_asked_about_are_counted(tmp_path, prepared):
    [first, *_] = read_examples(prepared / "test.jsonl")
    row = make_row(1, CLAIM, True, picture=first.pictures[0].path)
    blind = replace(row, id="blind", cluster="b", picture=None)
    choice = replace(row, id="choice", cluster="c", choices={"A": "a", "True": "b"})
    for split in ("train", "validation", "test"):
        others = (blind, choice) if split == "train" else ()
        more = [replace(row, id=f"{split}{n}", cluster=f"{split}{n}") for n in range(3)]
        write_rows(tmp_path / f"{split}.jsonl", [*more, *others])
    config = configure("data.drawn=null", f"data.rows.path={tmp_path}", "data.warmup_share=0.5")
    prepare_rows(config, tmp_path / "out")
    source = read_json(tmp_path / "out" / "source.json", dict)
    assert source["num_rows"] == 11
    assert source["drops"]["counts"] == {"no picture": 1, "no statement": 1}
    example = ask_about_row(row, config, None)
    with pytest.raises(DataError, match="has any reasoning or box to teach"):
        make_warmup_rows([example], "boxes")
    for targets in ("answer", "boxes"):
        assert PARSER.parse(write_target(example, targets)).label == "True"


def test_an_empty_split_says_what_was_dropped(tmp_path):
    for split in ("train", "validation", "test"):
        rows = [make_row(f"{split}{n}", CLAIM, True) for n in range(2)]
        write_rows(tmp_path / f"{split}.jsonl", rows)
    config = configure("data.drawn=null", f"data.rows.path={tmp_path}")
    with pytest.raises(DataError, match=r"is empty; give more rows \(dropped: 6 x no picture\)"):
        prepare_rows(config, tmp_path / "out")


def test_published_sets_are_labelled_rows_by_a_file_that_names_them(tmp_path):
    places = write_vsr(tmp_path / "zeroshot", num_train=6, num_others=9)
    named = {"vsr": {key.rpartition(".")[2]: str(path) for key, path in places.items()}}
    (tmp_path / "other.yaml").write_text(json.dumps(named), encoding="utf-8")
    write_json(tmp_path / "bias.json", {"kept_labels": {"on": "False"}})
    found, drops = read_labelled_rows(
        configure(), tmp_path, tmp_path / "other.yaml", tmp_path / "data"
    )
    assert {one.fields["source"] for one in found} == {"vsr_zeroshot"}
    assert len(found) == 9
    assert {one.fields["bias"] for one in found} == {"aligned", "conflicting", "unknown"}
    assert drops.counts == {
        "used for validation, not measured": 9,
        "used for train, not measured": 6,
    }


def test_rows_that_lack_a_column_are_dropped_by_its_name(tmp_path):
    draw_two(tmp_path / "a.png", 1, is_left=True)
    whole = {"picture": "a.png", "text": "It is so.", "answers": "True"}
    lacking = [{k: v for k, v in whole.items() if k != name} for name in whole]
    wrong = [{**whole, "answers": "yes"}, {**whole, "picture": "b.png"}]
    write_jsonl(tmp_path / "rows.jsonl", [*lacking, *wrong])
    write_json(tmp_path / "bias.json", {})
    asked = (configure(), tmp_path, tmp_path / "rows.jsonl", tmp_path / "data")
    with pytest.raises(DataError, match="there is no row that can be used") as caught:
        read_labelled_rows(*asked)
    for name in ("no column picture", "no column text", "no column answers", "answer is no choice"):
        assert f"'{name}': 1" in str(caught.value)
    write_jsonl(tmp_path / "rows.jsonl", [*lacking, *wrong, whole])
    [found], drops = read_labelled_rows(*asked)
    assert (found.label, drops.total) == ("True", 5)
    assert "Is the following statement true: It is so." in found.prompt[-1].text


@pytest.mark.parametrize("override", ["model.base=org/name", "sft=null"])
def test_seeing_needs_a_tiny_base_and_a_warmup_and_data_come_from_somewhere(override):
    with pytest.raises(ConfigError, match="vision_epochs teaches a tiny base by the pictures"):
        configure(override)
    assert configure(override, "vision_epochs=0").vision_epochs == 0
    with pytest.raises(Exception, match=r"name a data set: data\.drawn or data\.vsr"):
        configure("data.drawn=null")


def test_seeing_is_refused_where_nothing_is_to_be_seen(tmp_path):
    (tmp_path / "warmup.jsonl").write_text("")
    base = write_tiny_policy("tiny-qwen2.5-vl", tmp_path / "base")
    context = StepContext(
        tmp_path, tmp_path, "prepare", is_resumed=False, uses=(), config=configure()
    )
    with pytest.raises(ModelError, match="nothing to teach a vision encoder"):
        TASK.pretrain(context, base)


OPTIONS = ["here", "there", "nowhere", "on the grass"]


def make_item(label, *, options=None):
    fields = {} if options is None else {"options": options}
    return make_example([Message("user", "?")], cluster=label, label=label, fields=fields)


def wrap(answer):
    return f"<think>Look.</think><answer>{answer}</answer>"


SETS = st.sets(st.sampled_from("ABCD"), min_size=1)


@given(SETS, SETS, st.randoms(use_true_random=False), st.sampled_from([",", ", ", " ", "、"]))
def test_letters_are_a_set(right, said, rng, joint):
    letters = sorted(said)
    rng.shuffle(letters)  # pyright: ignore[reportAttributeAccessIssue]
    item = make_item(", ".join(sorted(right)), options=OPTIONS)
    assert QUESTION_PARSER.measure(item, wrap(joint.join(letters))) == float(said == right)


@pytest.mark.parametrize(
    "answer", ["A, A", "A, E", "F", "AC", "", "A, C because", "A, C\nB?", "True", "A or C", "none"]
)
def test_what_is_no_set_of_its_letters_is_invalid(answer):
    item = make_item("A, C", options=OPTIONS)
    assert QUESTION_PARSER.measure(item, wrap(answer)) is None
    scores = make_rewards(RewardWeights()).score_batch([item], [Completion(wrap(answer))])
    assert (scores[0].value, scores[0].invalid) == (0, True)


def test_text_behind_the_answer_is_invalid_and_white_space_before_it_is_not():
    for item, answer in ((make_item("A, C", options=OPTIONS), "C,A"), (make_item("True"), "True")):
        assert QUESTION_PARSER.measure(item, f"\n {wrap(answer)}") == 1
        assert QUESTION_PARSER.measure(item, f"{wrap(answer)} Yes.") is None
    for target in ("True", "False", "B", "A, C"):
        assert QUESTION_PARSER.parse(QUESTION_PARSER.write(target)).label == target
    assert QUESTION_PARSER.labels == ()


@pytest.mark.parametrize("answer", ["True", "false", "True.", "A", "True, False", "Yes"])
def test_statements_are_read_as_where_there_are_no_choices(answer):
    item, text = make_item("True"), wrap(answer)
    assert QUESTION_PARSER.parse(text, item) == PARSER.parse(text, item)


@pytest.mark.parametrize(("text", "right"), TABLES["last_words"])
def test_the_lenient_reader_takes_the_last_word(text, right):
    assert measure_leniently(make_item("True"), text) == {"lenient_accuracy": float(right)}
    assert measure_leniently(make_item("A", options=OPTIONS), text) == {}


@given(st.sampled_from(["True", "False"]), st.sampled_from(["True", "False"]), st.text())
def test_what_is_right_strictly_is_right_leniently(label, said, thought):
    item, text = make_item(label), f"<think>{thought}</think><answer>{said}</answer>"
    if QUESTION_PARSER.measure(item, text) is not None:
        found = measure_leniently(item, text)["lenient_accuracy"]
        assert found == QUESTION_PARSER.measure(item, text)


SHORT, LONG = ("on", "in", "at"), ("on", "far away from it", "at")
LABELS = st.sampled_from(["A", "B", "C", "A, B", "A, C", "B, C"])


def ask(label: str, options: Sequence[str] = SHORT, number: int = 0) -> Example:
    asked = [Message("user", f"Where is thing {number}?")]
    return make_example(asked, cluster=str(number), label=label, fields={"options": [*options]})


def state(label, number=0):
    return make_example([Message("user", f"Thing {number} is red.")], cluster="s", label=label)


def answer(train, test):
    return [one.predicted for one in predict_choices(train, test)]


def test_the_rule_that_is_best_in_training_answers():
    spoken = [state("False")]
    test = [ask("A"), ask("C", LONG), *spoken]
    assert answer([ask("C"), ask("C"), ask("A"), *spoken], test) == ["C", "C", "False"]
    several = [ask("A, B"), ask("A, B"), ask("A, C"), ask("A"), *spoken]
    assert answer(several, test) == ["A, B", "A, B", "False"]
    longest = [ask("B", LONG), ask("A", LONG[1:]), ask("C", ("x", "y", "longer")), *spoken]
    assert answer(longest, test) == ["A", "B", "False"]


def test_of_equals_the_first_is_taken_and_statements_get_their_own_commonest_label():
    tied = [ask("B"), ask("A"), state("True")]
    test = [ask("C"), state("True")]
    assert answer(tied, test) == ["A", "True"]
    assert name_longest(ask("A", ("one", "two"))) == "A"
    train = [ask("C"), state("True", 1), state("False", 2), state("False", 3)]
    assert answer(train, test) == ["C", "False"]
    [_, silent] = predict_choices([ask("C")], test)
    assert (silent.predicted, silent.reason) == (None, "there is no statement in training")


def test_one_answer_to_all_is_left_to_the_majority_label_and_no_choices_to_nobody():
    assert predict_choices([ask("C")], [ask("A"), ask("B", LONG)]) == []
    assert predict_choices([ask("A")], [state("True")]) == []
    assert predict_choices([state("True")], [ask("A")]) == []


@given(st.lists(st.tuples(LABELS, st.permutations(LONG)), min_size=1, max_size=12))
def test_no_constant_answer_is_right_more_often_in_training(rows):
    train = [ask(label, options, number) for number, (label, options) in enumerate(rows)]
    rule = choose_rule(train)
    num_right = sum(rule(one) == one.label for one in train)
    labels = [one.label for one in train]
    assert num_right >= max(map(labels.count, labels))
    assert num_right >= sum(name_longest(one) == one.label for one in train)


def test_it_is_told_among_the_baselines_and_does_not_reason():
    [found] = [one for one in TASK.baselines if one.name == "choices"]
    [marked] = mark_silent([found], "boxes")
    assert marked.inapplicable == ("alignment",)
