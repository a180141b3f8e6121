"""What the evaluation of a run leaves for its report."""

import itertools
import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from small_task import LORA, PARSER, SmallConfig, SmallTask
from transformers import BertConfig, BertModel, BertTokenizerFast, Dinov2Config, Dinov2Model

from groupwise.core import (
    Completion,
    DataError,
    Example,
    Message,
    make_example,
    read_json,
    read_jsonl,
    read_picture,
)
from groupwise.data.examples import read_examples
from groupwise.evaluation.baselines import JOINT, Candidate
from groupwise.evaluation.metrics import compute_metrics, read_metrics
from groupwise.evaluation.predictions import Measure, Prediction, Prompts, read_as
from groupwise.evaluation.report.phrases import format_share
from groupwise.evaluation.results import list_looks
from groupwise.models.embedders import SENTENCES, TOWER
from groupwise.models.identity import digest_base
from groupwise.models.policy import load_policy
from groupwise.rewards import LabelParser, Parsed
from groupwise.run import asking, probing
from groupwise.run.asking import (
    MIN_ITEMS,
    RunPolicy,
    Temperature,
    fit_temperature,
    read_temperatures,
    tell_winner,
    temper,
)
from groupwise.run.evaluating import (
    describe_examples,
    digest_prompts,
    list_slices,
    make_calibration_sections,
)
from groupwise.run.predict import PolicyPredictor, answer_requests, name_version, open_run
from groupwise.run.probing import Probes
from groupwise.run.steps import StepContext
from groupwise.run.task import Task
from groupwise.serving import Request


def test_the_shown_prompt_is_what_the_trained_policy_was_asked(finished: Path) -> None:
    asked = read_as(finished / "evaluate" / "prompts.json", Prompts)
    examples = {one.id: one for one in read_examples(finished / "prepare" / "test.jsonl")}
    assert asked.shown == load_policy(finished / "grpo" / "policy").render_prompt(
        examples[asked.item]
    )
    assert asked.turns == {name: one.prompt[-1].text for name, one in examples.items()}
    page = (finished / "report.md").read_text(encoding="utf-8")
    assert "## Mistakes" in page
    assert "## The prompt as the model sees it" in page


def test_the_measurement_of_the_test_split_is_one_look_at_the_items_it_is_of(
    finished: Path,
) -> None:
    (digest,) = {one.split_digest for one in read_metrics(finished / "evaluate/metrics.json")}
    (look,) = list_looks(finished, digest)
    assert (look.run, look.seed) == ("run", 0)
    assert "has been looked at 1\N{NO-BREAK SPACE}time by runs in" in (
        finished / "report.md"
    ).read_text("utf-8")


def test_only_commands_that_a_task_can_do_are_told(finished: Path) -> None:
    class NoRows(SmallTask):
        read_labelled = Task.read_labelled

    every = ["predict", "serve", "evaluate", "export"]
    assert read_json(finished / "evaluate" / "verbs.json", list) == every
    assert NoRows().list_verbs() == ["predict", "serve", "export"]
    # The report offers none of them: a policy that learned nothing is not for use.
    report = (finished / "report.md").read_text("utf-8")
    assert "GRPO is not offered for use" in report
    assert "groupwise evaluate run ROWS" not in report


def test_a_field_of_too_many_values_is_no_slice() -> None:
    class Sliced(SmallTask):
        slices = ("part", "kind", "absent")

    def make(number: int) -> Example:
        fields = {"part": number % 20, "kind": number}
        return make_example([Message("user", "?")], cluster=str(number), fields=fields)

    assert list_slices(Sliced(), [make(n) for n in range(21)]) == ["part"]
    assert list_slices(Sliced(), [make(n) for n in range(20)]) == ["part", "kind"]


@pytest.mark.parametrize(("is_higher_better", "first"), [(True, "length"), (False, "accuracy")])
def test_the_headline_measure_chooses_a_checkpoint_where_more_is_better(
    is_higher_better: bool, first: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Headed(SmallTask):
        headline = "length"
        measures = (Measure("length", "Length", "长度", is_higher_better=is_higher_better),)

        def measure_heldout(self, config, examples, texts):
            return {"length": 3.0}

    answers = [Completion("x", token_ids=(1,), finish_reason="stop")]
    monkeypatch.setattr(asking, "answer_greedily", lambda *_: answers)
    example = make_example([Message("user", ["A?"])], cluster="1", label="yes")
    values = asking.check_heldout(Headed(), None, [example], SmallConfig(**LORA), run=Path())
    assert next(iter(values)) == first
    own = {"accuracy": 0.0, "invalid": 1.0, "length": 3.0}
    assert values == own | {"commonest": 0.0, "majority": 1.0, "n": 1}


@pytest.mark.parametrize("name", ["sft", "sft_control"])
def test_sft_is_looked_at_on_held_out_items(finished: Path, name: str) -> None:
    looks = [row for row in read_jsonl(finished / name / "metrics.jsonl") if "heldout/n" in row]
    assert [(row["step"], row["heldout/n"]) for row in looks] == [(1, 2), (2, 2)]
    assert all(row["heldout/accuracy"] + row["heldout/invalid"] <= 1 for row in looks)
    assert "num_looks" not in read_json(finished / name / "budget.json", dict)
    page = (finished / "report.md").read_text()
    assert "(report/loss.svg)" in page
    assert "(report/heldout-accuracy.svg)" in page


FILE = Path("evaluate", "calibration.json")


def test_a_run_fits_one_for_each_policy_on_validation_items_alone(finished: Path) -> None:
    rows = read_json(finished / FILE, dict)
    assert list(rows) == ["prompt", "sft", "sft_control", "grpo"]
    for name, row in rows.items():
        assert row["weights"] == digest_base(open_run(finished).find_policy(name))
        assert row["num_items"] <= 8
        assert (row["value"], row["reason"]) == (None, "fewer than 20 items")
    report = (finished / "report.md").read_text("utf-8")
    assert "Is the policy as sure as it should be?" in report
    assert "not fitted: fewer than 20 items" in report


def write(run: Path, **rows: object) -> Path:
    path = run / FILE
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(rows))
    return run


def test_confidence_is_that_of_the_temperature_of_these_weights(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = Parsed(PARSER.labels[0])  # an untrained policy says nothing that is a label
    monkeypatch.setattr(LabelParser, "parse", lambda *given: said)
    run = open_run(finished)
    weights = str(digest_base(run.find_policy("grpo")))
    rows = {
        "grpo": {"weights": weights, "value": 4.0},
        "sft": {"weights": "other", "value": 0.1},
        "prompt": {"weights": None, "value": 2.0},
        "none": {"weights": "x", "value": None},
    }
    found = read_temperatures(write(tmp_path, **rows))
    assert found == {weights: 4.0, "other": 0.1}
    asked = [Request(str(n), {"question": f"第{n}个螺栓，合格还是不合格？"}) for n in range(6)]

    def ask(temperatures):
        place = run.find_policy("grpo")
        predictor = PolicyPredictor(SmallTask(), run.config, place, temperatures=temperatures)
        return predictor, answer_requests(predictor, asked)

    (plain, before), (other, untouched), (calibrated, after) = map(ask, ({}, {"other": 0.1}, found))
    assert untouched == before
    assert name_version(other) == name_version(plain) != name_version(calibrated)
    assert "temperature" not in plain.describe()
    assert calibrated.describe()["temperature"] == 4.0
    for one, two in zip(before, after, strict=True):
        assert one.answer
        assert replace(one, confidence=None) == replace(two, confidence=None)
        shares = {"said": one.confidence, "other": 1 - one.confidence}
        assert two.confidence == pytest.approx(temper(shares, 4.0)["said"], abs=1e-6)


def test_a_run_without_the_file_has_none(tmp_path: Path) -> None:
    assert read_temperatures(tmp_path) == {}


@pytest.mark.parametrize("row", [{"weights": 1, "value": 1}, {"weights": "w", "value": -1}])
def test_a_damaged_file_is_told(tmp_path: Path, row) -> None:
    with pytest.raises(DataError, match="has no temperature of grpo"):
        read_temperatures(write(tmp_path, grpo=row))


def make_prediction(number: int, confidence: float, policy: str = "grpo") -> Prediction:
    labels = PARSER.labels
    shares = {labels[0]: confidence, labels[1]: 1 - confidence}
    truth = labels[number % 10 >= 7]
    return Prediction(
        f"{number}", f"{number}", "test", policy, truth, labels[0], probabilities=shares
    )


def test_the_report_tells_the_error_before_and_after_in_both_languages() -> None:
    rows = [make_prediction(number, 0.99) for number in range(100)]
    rows += [make_prediction(number, 0.7, "majority") for number in range(100)]
    policy = RunPolicy(name="grpo", title="GRPO", title_zh="强化", kind="trained")
    english, chinese = make_calibration_sections(
        rows, {"grpo": Temperature(5.4, 96, 30)}, labels=PARSER.labels, policies=[policy], seed=0
    )
    (row,) = english.tables[0].rows
    assert row[:4] == ("GRPO", "5.4", "96", "30")
    assert str(row[4]).startswith("0.290")
    assert str(row[5]).startswith("0.00")
    assert "100 items of the split test" in english.text
    assert chinese.tables[0].rows[0][0] == "强化"
    assert (english.language, chinese.language) == ("en", "zh")
    assert not make_calibration_sections(rows, {}, labels=PARSER.labels, policies=[], seed=0)


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """A cache with tiny random embedders."""
    monkeypatch.setenv("GROUPWISE_CACHE", str(tmp_path / "cache"))
    torch.manual_seed(0)
    words = tmp_path / "vocab.txt"
    words.write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "cat", "dog"]))
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1}
    for name, model in (
        (SENTENCES, BertModel(BertConfig(vocab_size=7, intermediate_size=8, **sizes))),
        (TOWER, Dinov2Model(Dinov2Config(mlp_ratio=1, image_size=28, patch_size=14, **sizes))),
    ):
        folder = tmp_path / "cache" / "models" / f"{name}-abc"
        model.save_pretrained(folder)
        if name == SENTENCES:
            BertTokenizerFast(str(words)).save_pretrained(folder)
    return tmp_path / "cache"


def open_probes(folder, train, *, test=(), base="tiny-qwen2"):
    config = SimpleNamespace(
        model=SimpleNamespace(
            is_tiny=base.startswith("tiny"), dtype="float32", max_pixels=None, quantization=None
        ),
        evaluation=SimpleNamespace(batch_size=4),
    )
    folder.mkdir(exist_ok=True)
    context = StepContext(folder, folder, "baselines", is_resumed=False)
    return Probes(config, base, context, train, test)


def paint(path, colour):
    Image.new("RGB", (30, 20), colour).save(path)
    return read_picture(path)


def ask(*parts):
    return Example(str(parts[-1]), (Message("user", parts),), "yes", "a", {})


def test_what_is_left_out_has_a_reason(tmp_path, monkeypatch):
    monkeypatch.setenv("GROUPWISE_CACHE", str(tmp_path / "empty"))
    rows = [ask("cat"), ask("dog")]
    assert open_probes(tmp_path / "a", rows).left_out == {
        "hidden states": "the base is tiny and random",
        "sentence embeddings": f"{SENTENCES} is not here: groupwise models fetch {SENTENCES}",
        "picture features": "there are no pictures",
    }
    monkeypatch.setattr(probing, "MAX_STATES", 2)
    assert "hidden states" not in open_probes(tmp_path / "a", rows, base="real").left_out
    many = open_probes(tmp_path / "a", rows, test=rows, base="real").left_out
    assert many["hidden states"] == "4 examples are more than 2"
    assert open_probes(tmp_path / "a", rows)(rows) == {}


def test_features_are_read_once_and_belong_to_their_examples(tmp_path, cache, monkeypatch):
    rows = [ask(text) for text in ("cat", "dog", "cat dog", "dog dog")]
    found = open_probes(tmp_path / "a", rows)(rows)["sentence embeddings"]
    assert np.allclose(np.linalg.norm(found, axis=1), 1, atol=1e-5)
    again = open_probes(tmp_path / "b", rows)(rows[::-1])["sentence embeddings"]
    assert np.allclose(again[::-1], found, atol=1e-5)
    assert not np.allclose(found[0], found[1], atol=1e-3)
    monkeypatch.setattr(probing, "embed_texts", None)
    kept = open_probes(tmp_path / "a", rows)(rows)["sentence embeddings"]
    assert np.array_equal(kept, found)


def test_several_pictures_are_joined_and_texts_stand_beside_them(tmp_path, cache):
    one, two = (paint(tmp_path / f"{colour}.png", colour) for colour in ("red", "blue"))
    rows = [ask(one, two, "cat"), ask(two, "dog")]
    found = open_probes(tmp_path / "a", rows)(rows)
    pictures = found["picture features"]
    assert pictures.shape == (2, 3 * 16)
    mean, low, high = np.split(pictures, 3, axis=1)
    assert np.allclose(mean[1], low[1])
    assert np.allclose(mean[1], high[1])
    assert (low[0] <= mean[0]).all()
    assert (mean[0] <= high[0]).all()
    assert found["picture features and sentence embeddings"].shape == (2, 3 * 16 + 8)
    alone = open_probes(tmp_path / "b", rows[1:])(rows[1:])["picture features"]
    assert np.allclose(alone[0], mean[1], atol=1e-4)


def test_hidden_states_of_blocks_and_poolings_are_told_apart(
    tmp_path, monkeypatch, text_folder, text_examples
):
    monkeypatch.setenv("GROUPWISE_CACHE", str(tmp_path / "empty"))
    found = open_probes(tmp_path / "a", text_examples, base=str(text_folder))(text_examples)
    names = [name for name in found if name.startswith("hidden states of block ")]
    assert len(names) == len(found) >= 4
    assert len({rows.tobytes() for rows in found.values()}) == len(found)
    swapped = list(text_examples)[::-1]
    again = open_probes(tmp_path / "b", swapped, base=str(text_folder))(swapped)
    for name, rows in found.items():
        assert np.allclose(again[name][::-1], rows, atol=1e-3)
    policy = load_policy(text_folder)
    prompt = policy.tokenizer(policy.render_prompt(text_examples[0]), return_tensors="pt")
    with torch.inference_mode():
        states = policy.model(**prompt, output_hidden_states=True).hidden_states[1][0]
    mean, last = (found[f"hidden states of block 1, {how}"][0] for how in ("mean", "last token"))
    assert np.allclose(mean, states.mean(0), atol=1e-4)
    assert np.allclose(last, states[-1], atol=1e-4)


def test_the_winner_is_told_with_the_policy(tmp_path):
    rows = [ask("cat"), ask("dog")]
    probes = open_probes(tmp_path / "baselines", rows)
    probes.record([Candidate("words", 0.75, print), Candidate("nothing", 0.5, print)])
    told = tell_winner(JOINT, tmp_path)
    assert told.note.endswith(
        f"; here words ({format_share(0.75)} in cross-validation on training rows)"
    )
    assert "此处为文字" in told.note_zh
    assert tell_winner(JOINT, tmp_path / "elsewhere") == JOINT
    assert read_json(tmp_path / "baselines" / "joint.json", dict)["left_out"] == probes.left_out


def make_items(question: str = "Is it on-task?") -> list[Example]:
    return [
        make_example(
            [Message("user", f"任务 {n}: {question}")], cluster=f"g{n // 2}", label="yn"[n % 2]
        )
        for n in range(4)
    ]


def test_examples_are_counted_with_their_clusters():
    few = describe_examples(make_items())
    assert few == {"digest": few["digest"], "num_rows": 4, "num_clusters": 2}


def test_order_counts_for_data_and_not_for_prompts():
    items = make_items()
    assert describe_examples(items)["digest"] != describe_examples(items[::-1])["digest"]
    assert digest_prompts(items) == digest_prompts(items[::-1])
    assert digest_prompts(items) != digest_prompts(make_items("Is it off-task?"))
    assert digest_prompts(items) != digest_prompts(items[:3])


THREE = ("a", "b", "c")
SHARES = st.lists(st.floats(0, 1), min_size=2, max_size=5).filter(lambda one: sum(one) > 0.01)


def draw_too_sure(num_items, value, *, seed):
    """Return shares that are ``value`` times too sure, and truths drawn from the honest ones."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(0, 1.5, (num_items, len(THREE)))
    honest = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    said = np.exp(value * logits) / np.exp(value * logits).sum(axis=1, keepdims=True)
    truths = [str(rng.choice(THREE, p=row)) for row in honest]
    return [dict(zip(THREE, row.tolist(), strict=True)) for row in said], truths


@pytest.mark.parametrize("value", [0.4, 1.0, 3.0])
def test_it_finds_how_much_too_sure_somebody_is(value):
    fitted = fit_temperature(*draw_too_sure(4000, value, seed=1))
    assert fitted.value == pytest.approx(value, rel=0.1)
    assert (fitted.num_items, fitted.reason) == (4000, "")
    assert 0 < fitted.num_mistakes < 4000


def test_fitted_on_some_items_it_is_right_about_others():
    value = fit_temperature(*draw_too_sure(500, 3.0, seed=1)).value
    shares, truths = draw_too_sure(4000, 3.0, seed=2)
    rows = [
        Prediction(f"i{n:04}", f"g{n:04}", "test", "grpo", truth, max(one, key=one.get))
        for n, (truth, one) in enumerate(zip(truths, shares, strict=True))
    ]
    errors: list[float] = []
    for each in (shares, [temper(one, value) for one in shares]):
        said = [replace(p, probabilities=one) for p, one in zip(rows, each, strict=True)]
        metrics = compute_metrics(said, labels=THREE)
        errors += [one.value for one in metrics if one.measure == "ece"]
    assert errors[0] > 0.15
    assert errors[1] < 0.03


@given(shares=SHARES, value=st.floats(0.05, 20))
def test_it_changes_no_answer_and_at_one_nothing(shares, value):
    total = sum(shares)
    before = {str(n): one / total for n, one in enumerate(shares)}
    after = temper(before, value)
    assert sum(after.values()) == pytest.approx(1)
    assert list(after) == list(before)
    for one, other in itertools.product(before, before):
        assert before[one] < before[other] or after[one] >= after[other]
    assert temper(before, 1.0) == pytest.approx(before, abs=1e-9)


def test_no_other_temperature_fits_better():
    shares, truths = draw_too_sure(200, 2.0, seed=3)

    def lose(value):
        likely = [temper(one, value)[truth] for one, truth in zip(shares, truths, strict=True)]
        return -np.log(likely).mean()

    best = lose(fit_temperature(shares, truths).value)
    assert all(lose(value) >= best - 1e-6 for value in np.geomspace(0.05, 20, 100))


def test_certainty_that_is_wrong_is_cooled_and_stays_a_number():
    shares = [{"a": 1.0, "b": 0.0}] * 30
    fitted = fit_temperature(shares, ["a"] * 20 + ["b"] * 10)
    assert fitted.value == pytest.approx(20, rel=0.01)
    assert all(0 < one < 1 for one in temper(shares[0], fitted.value).values())


@pytest.mark.parametrize(
    ("num_items", "truth", "reason", "num_mistakes"),
    [
        (0, "a", "fewer than 20 items", 0),
        (MIN_ITEMS - 1, "b", "fewer than 20 items", MIN_ITEMS - 1),
        (MIN_ITEMS, "a", "no mistake", 0),
        (MIN_ITEMS, "b", "nothing right", MIN_ITEMS),
    ],
)
def test_where_none_can_be_known_there_is_none(num_items, truth, reason, num_mistakes):
    fitted = fit_temperature([{"a": 0.9, "b": 0.1}] * num_items, [truth] * num_items)
    assert (fitted.value, fitted.reason) == (None, reason)
    assert (fitted.num_items, fitted.num_mistakes) == (num_items, num_mistakes)
