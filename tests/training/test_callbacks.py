"""Around training steps: what is shown, kept and chosen, and what ends a training."""

import json
import re
from datetime import UTC, datetime, timedelta
from functools import partial
from types import SimpleNamespace

import pytest
from training_job import reinforce, teach

from groupwise.core import ProgressLine, Score, TrainingError, read_json, read_jsonl
from groupwise.evaluation.alarms import History
from groupwise.models.policy import load_policy
from groupwise.models.trainable import (
    LoraSettings,
    TrainableSettings,
    format_trainable,
    prepare_trainable,
    tabulate_trainable,
)
from groupwise.run.training import describe_stop
from groupwise.training import callbacks
from groupwise.training.callbacks import MetricRows, StepProgress, draw_curve
from groupwise.training.settings import GrpoSettings, SftSettings, ValidationSettings

TRAINABLE = TrainableSettings(lora=LoraSettings(last_blocks=1))


@pytest.fixture
def table(text_folder):
    model = prepare_trainable(load_policy(text_folder).model, TRAINABLE)
    return format_trainable(tabulate_trainable(model)) + "\n"


def test_sft_prints_it_once_before_the_first_step(
    table, text_folder, text_examples, tmp_path, monkeypatch, capfd
):
    from trl.trainer.sft_trainer import SFTTrainer

    compute, seen = SFTTrainer.compute_loss, []

    def note(self, *given, **named):
        seen.append(capfd.readouterr().err)
        return compute(self, *given, **named)

    monkeypatch.setattr(SFTTrainer, "compute_loss", note)
    teach(text_folder, text_examples, tmp_path, trainable=TRAINABLE)
    assert seen == [table, *[""] * (len(seen) - 1)]
    line = r"  \S+: (\d) of \1 steps(, in \d+ s)?, loss [\d.]+\n"
    assert re.fullmatch(line, capfd.readouterr().err)


class Watcher:
    """Notes what is on the screen whenever a completion is scored."""

    name = "watcher"

    def __init__(self, capfd):
        self.capfd, self.seen = capfd, []

    def __call__(self, example, completion):
        self.seen.append(self.capfd.readouterr().err)
        return Score(float(len(self.seen) % 2))


def test_grpo_prints_it_once_before_the_first_step(
    table, text_folder, text_examples, tmp_path, capfd
):
    watcher = Watcher(capfd)
    settings = {"max_steps": 1, "beta": 0.1, "trainable": TRAINABLE}
    reinforce(text_folder, text_examples, tmp_path, reward=watcher, **settings)
    assert watcher.seen[0] == table
    assert table not in "".join(watcher.seen[1:])


def test_only_the_first_process_prints_it(
    table, text_folder, text_examples, tmp_path, monkeypatch, capfd
):
    monkeypatch.setenv("RANK", "1")
    teach(text_folder, text_examples, tmp_path, trainable=TRAINABLE)
    assert table not in capfd.readouterr().err
    assert not list(tmp_path.iterdir())


def make_rows(folder):
    trackers = SimpleNamespace(log=lambda *_: None)
    return MetricRows(folder / "metrics.jsonl", rename=dict, num_epochs=1, trackers=trackers)


def test_it_says_how_far_a_training_is_to_go_and_goes_with_its_end(tmp_path, monkeypatch):
    rows = make_rows(tmp_path)
    state = SimpleNamespace(max_steps=40, global_step=25)
    rows.on_train_begin(None, state, None)
    found = json.loads((tmp_path / "progress.json").read_text())
    assert (found["num_steps"], found["first_step"]) == (40, 25)
    age = datetime.now(UTC) - datetime.fromisoformat(found["started_at"])
    assert timedelta(0) <= age < timedelta(hours=1)
    for _ in range(2):
        rows.on_train_end(None, state, None)
        assert list(tmp_path.iterdir()) == []
    monkeypatch.setenv("RANK", "1")  # only one process writes it
    rows.on_train_begin(None, state, None)
    assert list(tmp_path.iterdir()) == []


def test_values_have_the_names_of_the_metrics(monkeypatch, capsys):
    line = partial(ProgressLine, every_s=-1.0)
    monkeypatch.setattr(callbacks, "ProgressLine", line)
    progress = StepProgress(
        "grpo", shown={"reward": "reward", "frac_reward_zero_std": "dead_groups"}
    )
    state = SimpleNamespace(global_step=0, max_steps=4)
    progress.on_train_begin(None, state, None)
    state.global_step = 1
    progress.on_log(None, state, None, logs={"frac_reward_zero_std": 0.25, "loss": 1.0})
    progress.on_step_end(None, state, None)
    line = capsys.readouterr().err
    assert line.startswith("  grpo: 0 of 4 steps\n  grpo: 1 of 4 steps, about 0 s left, ")
    assert line.endswith(", dead_groups 0.25\n")


def test_the_reward_and_the_looks_at_validation_are_curves(monkeypatch, capsys):
    monkeypatch.setattr(callbacks, "ProgressLine", partial(ProgressLine, every_s=-1.0))
    looks = SimpleNamespace(last_step=0, values={})
    progress = StepProgress("grpo", shown={"reward": "reward"}, looks=looks)
    state = SimpleNamespace(global_step=0, max_steps=2)
    progress.on_train_begin(None, state, None)
    for step, reward in ((1, 0.0), (2, 0.75)):
        state.global_step = step
        progress.on_log(None, state, None, logs={"reward": reward})
        if step == 2:
            looks.last_step, looks.values = 2, {"good": 0.5, "n": 8}
        progress.on_step_end(None, state, None)
    first, last = capsys.readouterr().err.splitlines()[-2:]
    assert first.endswith("reward ▁ 0")
    assert last.endswith("reward ▁▇ 0.75  validation good ▅ 0.5")


def test_a_curve_has_at_most_so_many_bars_and_each_is_a_mean():
    assert draw_curve([]) == ""
    assert draw_curve([0, 0.5, 1, 2, -1]) == "▁▅██▁"
    assert draw_curve([0.0, 1.0] * 24) == "▅" * 24


LORA = TrainableSettings(method="lora", lora=LoraSettings(rank=4, last_blocks=1))


def teach_one_text(base, examples, folder, *, learning_rate=1e-7, **asked):
    """24 steps of SFT, at a rate that teaches nothing unless another is given."""
    policy = load_policy(base)
    asked = {"find_stop": describe_stop, "trainable": LORA, "log_every_steps": 1} | asked
    asked |= {"batch_size": 2, "epochs": 12, "learning_rate": learning_rate}
    targets = ["an answer that it does not know"] * 4
    teach(policy, examples[:4], folder, targets=targets, **asked)
    return [p.detach() for p in policy.model.parameters() if p.requires_grad]


def test_sft_that_teaches_nothing_stops_at_half_and_goes_on_to_the_same_weights(
    taught_text_folder, text_examples, tmp_path
):
    given = taught_text_folder, text_examples
    with pytest.raises(TrainingError) as stopped:
        teach_one_text(*given, tmp_path / "stopped")
    said = str(stopped.value)
    assert said.startswith("stopped was stopped at step 20 of 24: the loss is not falling: ")
    assert "raise sft.learning_rate" in said
    assert "--set stop_on_alarm=false goes on from here" in said
    rows = read_jsonl(tmp_path / "stopped" / "metrics.jsonl")
    assert rows[-1]["step"] == 20
    assert read_json(tmp_path / "stopped" / "progress.json", dict)["num_steps"] == 24

    with pytest.raises(TrainingError) as again:
        teach_one_text(*given, tmp_path / "stopped")
    assert str(again.value) == said
    assert read_jsonl(tmp_path / "stopped" / "metrics.jsonl") == rows

    found = teach_one_text(*given, tmp_path / "stopped", find_stop=None)
    whole = teach_one_text(*given, tmp_path / "whole", find_stop=None)
    assert all(a.equal(b) for a, b in zip(found, whole, strict=True))
    one, other = (History(read_jsonl(tmp_path / n / "metrics.jsonl")) for n in ("stopped", "whole"))
    assert one.read("loss") == other.read("loss")


def test_sft_that_learns_is_not_stopped(taught_text_folder, text_examples, tmp_path):
    teach_one_text(taught_text_folder, text_examples, tmp_path, learning_rate=1e-2)
    loss = [row["loss"] for row in read_jsonl(tmp_path / "metrics.jsonl")]
    assert len(loss) == 24
    assert loss[-1] < loss[0]


def test_looks_with_one_answer_to_everything_stop_it(taught_text_folder, text_examples, tmp_path):
    looked = {"accuracy": 0.5, "commonest": 1.0, "majority": 0.5, "n": 96}
    asked = {"learning_rate": 1e-2, "heldout_every_steps": 5, "look": lambda: looked}
    with pytest.raises(TrainingError, match="held-out items got one and the same answer"):
        teach_one_text(taught_text_folder, text_examples, tmp_path, **asked)


@pytest.mark.parametrize("steps", [32, pytest.param(30, marks=pytest.mark.slow)])
def test_grpo_that_earns_nothing_stops_before_its_last_step(
    steps, taught_text_folder, text_examples, tmp_path
):
    """Two groups a step: sixty of them are thirty steps, of which the last one stops nothing."""
    settings = {"epochs": 20, "max_steps": steps, "prompts_per_step": 2, "max_new_tokens": 2}
    asked = {"reward": lambda *_: Score(0.0), "find_stop": describe_stop, "trainable": LORA}
    given = taught_text_folder, text_examples, tmp_path
    if steps == 30:
        reinforce(*given, **settings, **asked)
        assert read_json(tmp_path / "budget.json", dict)["num_steps"] == 30
        return
    with pytest.raises(TrainingError, match="step 30 of 32: in none of the 60 groups so far"):
        reinforce(*given, **settings, **asked)


FULL = TrainableSettings(method="full")


class FixedLooks:
    """Gives values one after the other, and remembers the weights that it was shown."""

    def __init__(self, values, measure="accuracy"):
        self.values = list(values)
        self.measure = measure
        self.seen = []

    def __call__(self):
        trained = (p for p in self.policy.model.parameters() if p.requires_grad)
        self.seen.append([p.detach().clone() for p in trained])
        value = self.values.pop(0)
        if isinstance(value, Exception):
            raise value
        return {
            self.measure: value,
            "accuracy": 1 - value if self.measure == "f1" else value,
            "n": 12,
        }


def train(kind, base, examples, folder, looks, *, trainable=LORA, save_every_steps=None, **asked):
    """Four steps with a look at each, unless they are told otherwise; return what trained."""
    settings = {"learning_rate": 1e-2, "trainable": trainable, "save_every_steps": save_every_steps}
    if "heldout_every_steps" in asked:
        settings |= asked
    else:
        settings["validation"] = ValidationSettings(**({"every_steps": 1} | asked))
    policy = load_policy(base)
    if looks is not None:
        looks.policy = policy
    if kind == "sft":
        teach(policy, examples, folder, look=looks, batch_size=2, **settings)
    else:
        reinforce(policy, examples, folder, look=looks, prompts_per_step=2, **settings)
    return [p.detach() for p in policy.model.parameters() if p.requires_grad]


def is_same(one, other):
    return all(a.equal(b) for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize(
    ("kind", "trainable"),
    [
        ("sft", LORA),
        pytest.param("grpo", LORA, marks=pytest.mark.slow),
        pytest.param("grpo", FULL, marks=pytest.mark.slow),
    ],
    ids=["sft", "lora", "full"],
)
def test_the_best_look_is_kept(kind, trainable, taught_text_folder, text_examples, tmp_path):
    looks = FixedLooks([0.2, 0.7, 0.5, 0.7])
    found = train(kind, taught_text_folder, text_examples, tmp_path, looks, trainable=trainable)
    assert [is_same(found, seen) for seen in looks.seen] == [False, True, False, False]
    assert json.loads((tmp_path / "selection.json").read_text()) == {
        "select": "best",
        "chosen_by": "accuracy",
        "kept_step": 2,
        "last_step": 4,
        "num_items": 12,
        "looks": [{"step": n, "accuracy": a} for n, a in ((1, 0.2), (2, 0.7), (3, 0.5), (4, 0.7))],
    }
    budget = json.loads((tmp_path / "budget.json").read_text())
    assert (budget["num_steps"], budget["num_looks"]) == (4, 4)
    assert budget["num_validation_items"] == 12
    assert not (tmp_path / "best").exists()


@pytest.mark.parametrize("kind", ["sft", pytest.param("grpo", marks=pytest.mark.slow)])
@pytest.mark.parametrize("select", ["best", pytest.param("last", marks=pytest.mark.slow)])
def test_it_stops_when_no_look_is_better(kind, select, taught_text_folder, text_examples, tmp_path):
    looks = FixedLooks([0.5, 0.5, 0.4, 1.0])
    given = taught_text_folder, text_examples, tmp_path, looks
    found = train(kind, *given, patience=2, select=select)
    assert len(looks.seen) == 3
    assert is_same(found, looks.seen[0 if select == "best" else 2])
    budget = json.loads((tmp_path / "budget.json").read_text())
    assert (budget["num_steps"], budget["num_samples"]) == (3, 6 if kind == "sft" else 12)
    assert max(row["step"] for row in read_jsonl(tmp_path / "metrics.jsonl")) == 3


def test_one_that_goes_on_after_a_crash_chooses_the_same(
    taught_text_folder, text_examples, tmp_path
):
    """Of the looks before the crash, too; those of steps that are done again count once.

    The first value of a look decides.
    """
    given = taught_text_folder, text_examples
    whole = train("sft", *given, tmp_path / "whole", FixedLooks([0.2, 0.7, 0.5, 0.6], "f1"))
    looks = FixedLooks([0.2, 0.7, RuntimeError("torn"), 0.5, 0.6], "f1")
    with pytest.raises(RuntimeError, match="torn"):
        train("sft", *given, tmp_path / "torn", looks, save_every_steps=1)
    found = train("sft", *given, tmp_path / "torn", looks, save_every_steps=1)
    assert is_same(found, whole)
    assert is_same(found, looks.seen[1])
    one, other = (read_json(tmp_path / name / "selection.json", dict) for name in ("whole", "torn"))
    assert one == other
    assert (one["chosen_by"], one["kept_step"]) == ("f1", 2)
    assert one["looks"][0] == {"step": 1, "f1": 0.2}


@pytest.mark.parametrize("kind", ["sft", pytest.param("grpo", marks=pytest.mark.slow)])
def test_looks_that_choose_nothing_change_nothing(
    kind, taught_text_folder, text_examples, tmp_path
):
    given, looks = (kind, taught_text_folder, text_examples), FixedLooks([0.2, 0.7, 0.5])
    looked = train(*given, tmp_path / "looked", looks, heldout_every_steps=3)
    alone = train(*given, tmp_path / "alone", looks, heldout_every_steps=None)
    assert is_same(looked, alone)
    rows = read_jsonl(tmp_path / "looked" / "metrics.jsonl")
    seen = [(row["step"], row["heldout/accuracy"]) for row in rows if "heldout/n" in row]
    assert seen == [(3, 0.2), (4, 0.7)]
    one, other = (read_json(tmp_path / name / "budget.json", dict) for name in ("looked", "alone"))
    assert one == other
    assert not (tmp_path / "looked" / "selection.json").exists()


@pytest.mark.parametrize("kind", ["sft", "grpo"])
def test_there_is_nothing_to_look_at(kind, taught_text_folder, text_examples, tmp_path):
    with pytest.raises(TrainingError, match="there is no validation split"):
        train(kind, taught_text_folder, text_examples, tmp_path, None)


@pytest.mark.parametrize("settings", [SftSettings, GrpoSettings])
def test_looks_are_asked_for_in_one_way(settings):
    with pytest.raises(ValueError, match="leave heldout_every_steps out"):
        settings(heldout_every_steps=2, validation=ValidationSettings(every_steps=2))
