"""GRPO: what it is given, scores, learns and leaves."""

import json
import math
import shutil
from collections import Counter
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from training_job import Scatter, reinforce

from groupwise.core import ModelError, Score, TrainingError, read_jsonl
from groupwise.models.policy import load_policy
from groupwise.models.trainable import TrainableSettings, list_trainable, prepare_trainable
from groupwise.rewards import RewardSet
from groupwise.training.grpo import RewardFunction, lay_out_prompts
from groupwise.training.grpo_trainer import find_temperature, make_prompt_rows, set_temperature
from groupwise.training.on_policy import score_alone
from groupwise.training.settings import GrpoSettings, SpeedSettings


class Fixed:
    """The same for every completion, or None."""

    name = "fixed"

    def __init__(self, value):
        self.value = value

    def __call__(self, example, completion):
        return Score(self.value)


class Asked(Scatter):
    """Remembers what it was asked."""

    def __init__(self):
        super().__init__(7)
        self.asked = []

    def __call__(self, example, completion):
        self.asked.append((example, completion.token_ids))
        return super().__call__(example, completion)


def list_changed(base, trained):
    """Return the names of parameters that are not those of the base any more."""
    before = dict(load_policy(base).model.named_parameters())
    return {name for name, p in trained.model.named_parameters() if not before[name].equal(p)}


def test_metrics_and_what_trains(taught_folder, picture_examples, tmp_path, capfd):
    trained = reinforce(
        taught_folder,
        picture_examples,
        tmp_path,
        look=lambda: {"accuracy": 0.5, "n": 8},
        heldout_every_steps=2,
        beta=0.1,
    )
    rows = read_jsonl(tmp_path / "metrics.jsonl")
    heldout = [row for row in rows if "heldout/n" in row]
    assert heldout == [{"step": 2, "heldout/accuracy": 0.5, "heldout/n": 8}]
    logged = [row for row in rows if "loss" in row]
    assert [(row["step"], row["epoch"]) for row in logged] == [(1, 0.5), (2, 1.0)]
    documented = "step epoch loss reward reward_std reward/scatter reward/scatter_std dead_groups"
    documented += (
        " invalid kl entropy completion_length tokens_per_s step_s learning_rate grad_norm"
    )
    documented += " num_groups num_dead_groups"
    for row in logged:
        assert set(row) == {*documented.split(), "unscored", "truncated"}
    assert logged[0]["kl"] == pytest.approx(0, abs=1e-6)
    assert logged[1]["kl"] > 1e-5
    printed = capfd.readouterr()
    assert printed.out == ""
    for noise in ("loss", "shards", "Loading weights", "Warning", "pin_memory"):
        assert noise not in printed.err
    assert list_changed(taught_folder, trained) == list_trainable(trained.model)
    assert not [name for name in list_trainable(trained.model) if "visual" in name]


def test_dead_groups_do_not_stop_it(taught_text_folder, text_examples, tmp_path):
    reinforce(taught_text_folder, text_examples, tmp_path, reward=Fixed(1.0), entropy_bonus=0.1)
    rows = read_jsonl(tmp_path / "metrics.jsonl")
    assert [row["dead_groups"] for row in rows] == [1.0, 1.0]
    assert [row["num_dead_groups"] for row in rows] == [4, 4]
    assert [row["reward"] for row in rows] == [1.0, 1.0]
    # What is left of the objective is the entropy bonus.
    for row in rows:
        assert row["loss"] == pytest.approx(-0.1 * row["entropy"], rel=1e-3)


def test_without_any_score_nothing_is_learned(taught_text_folder, text_examples, tmp_path):
    given = taught_text_folder, text_examples, tmp_path
    trained = reinforce(*given, reward=Fixed(None), entropy_bonus=0.0)
    rows = read_jsonl(tmp_path / "metrics.jsonl")
    assert [row["unscored"] for row in rows] == [1.0, 1.0]
    assert not [row for row in rows if "reward" in row or "reward/scatter" in row]
    assert list_changed(taught_text_folder, trained) == set()


def test_each_prompt_of_a_round_is_sampled_once(taught_text_folder, text_examples, tmp_path):
    """In the order laid out, however often a round is used; what does not fill one is counted.

    A shuffle inside the trainer would start anew when training is continued.
    """
    reward = Asked()
    settings = {
        "prompts_per_step": 1,
        "gradient_accumulation": 2,
        "steps_per_generation": 4,
        "num_iterations": 3,
        "epochs": 2,
        "entropy_bonus": 0.0,
        "loss": "cispo",
        "clip_high": 0.3,
    }
    reinforce(taught_text_folder, text_examples[:7], tmp_path, reward=reward, **settings)
    layout = lay_out_prompts(7, num_epochs=2, prompts_per_round=4, seed=0)
    asked = [text_examples.index(example) for example, _ in reward.asked]
    assert asked == [place for _, place in layout for _ in range(2)]
    resolved = json.loads((tmp_path / "resolved.json").read_text())
    assert resolved["prompts_left_out_per_epoch"] == 3
    assert resolved["loss_type"] == "cispo"
    assert resolved["epsilon_high"] == pytest.approx(1.3)  # of cispo this is the cap itself
    rows = read_jsonl(tmp_path / "metrics.jsonl")
    assert [row["step"] for row in rows] == list(range(1, 2 * 2 * 3 + 1))
    assert [row["step"] for row in rows if "dead_groups" in row] == [1, 7]
    assert all(0 <= row["skipped_rows"] <= 1 for row in rows)


def test_what_takes_places_of_dead_groups_is_in_metrics_and_budget(
    taught_text_folder, text_examples, tmp_path
):
    asked = Counter()

    class Half:
        """Every other prompt has a dead group."""

        def __call__(self, example, completion):
            place = text_examples.index(example)
            asked[place] += 1
            return Score(0.5 if place % 2 else (sum(completion.token_ids) % 97) / 96)

    settings = {"refill": {"max_tries": 9}, "group_size": 4}
    reinforce(taught_text_folder, text_examples, tmp_path, reward=Half(), **settings)
    rows = read_jsonl(tmp_path / "metrics.jsonl")
    total = {
        name: sum(row.get(name, 0) for row in rows)
        for name in ("num_groups", "num_dead_groups", "num_refills", "num_dead_refills")
    }
    num_filled = sum(row.get("num_filled_groups", 0) for row in rows)
    assert total["num_groups"] == 8
    assert total["num_dead_groups"] == num_filled == 4
    assert total["num_refills"] == num_filled + total["num_dead_refills"]
    budget = json.loads((tmp_path / "budget.json").read_text())
    assert budget["num_samples"] == sum(asked.values()) == 4 * (8 + total["num_refills"])
    assert budget["num_tokens"] <= 4 * budget["num_samples"]
    assert [row["skipped_rows"] for row in rows if "skipped_rows" in row] == []  # entropy bonus


@pytest.mark.parametrize("log_every_steps", [pytest.param(1, marks=pytest.mark.slow), 3])
def test_counts_add_up_over_a_run(taught_text_folder, text_examples, tmp_path, log_every_steps):
    """However many steps a row of metrics stands for."""

    class Half:
        """Every other prompt has a dead group; nothing else is at its group's mean."""

        def __call__(self, example, completion):
            is_dead = text_examples.index(example) % 2
            value = 0.5 if is_dead else (1 + math.sin(sum(completion.token_ids))) / 2
            return Score(value, facts={"dead": bool(is_dead)})

    settings = {"prompts_per_step": 2, "num_iterations": 2, "entropy_bonus": 0.0}
    settings |= {"group_size": 4, "log_every_steps": log_every_steps}
    reinforce(taught_text_folder, text_examples, tmp_path, reward=Half(), **settings)
    rows = read_jsonl(tmp_path / "metrics.jsonl")
    assert rows[-1]["step"] == 8
    total = {
        name: sum(row.get(name, 0) for row in rows)
        for name in ("num_groups", "num_dead_groups", "num_skipped_rows")
    }
    assert total == {"num_groups": 8, "num_dead_groups": 4, "num_skipped_rows": 2 * 4 * 4}
    told = [row["facts"] for row in rows if "facts" in row]
    assert sum(one["num"] for one in told) == 8 * 4
    assert sum(one["shares"]["dead"][0] for one in told) == 4 * 4


def test_an_update_takes_its_rows_from_one_round():
    with pytest.raises(ValueError, match="steps_per_generation 3 must be a multiple"):
        GrpoSettings(gradient_accumulation=2, steps_per_generation=3)


def test_adapters_and_references_of_weights_that_no_folder_has_are_refused(
    taught_text_folder, text_examples, tmp_path
):
    trained = reinforce(taught_text_folder, text_examples, tmp_path / "first")
    with pytest.raises(ModelError, match="not those of its folder any more"):
        prepare_trainable(trained.model, TrainableSettings())
    with pytest.raises(ModelError, match="not those of its folder any more"):
        reinforce(trained, text_examples, tmp_path / "r", beta=0.1)
    trained.save(tmp_path / "kept")
    settings = {"beta": 0.1, "learning_rate": 1e-6, "trainable": TrainableSettings()}
    reinforce(tmp_path / "kept", text_examples, tmp_path / "l", **settings)


def test_what_cannot_be_trained_is_refused_before_it_starts(
    taught_folder, taught_text_folder, picture_examples, text_examples, tmp_path
):
    mixed = [*picture_examples[:6], *text_examples[:2]]
    with pytest.raises(TrainingError, match="not both; got 2 of 8 without"):
        reinforce(taught_folder, mixed, tmp_path)
    with pytest.raises(TrainingError, match=r"too few prompts for one round; got 7; .* at least 8"):
        reinforce(taught_text_folder, text_examples[:7], tmp_path, gradient_accumulation=2)
    with pytest.raises(TrainingError, match="a warm-up of 2 steps in a training of 2;"):
        reinforce(taught_text_folder, text_examples, tmp_path, warmup_steps=2)
    assert not (tmp_path / "on_policy.json").exists()


def test_each_epoch_asks_each_prompt_once():
    layout = lay_out_prompts(10, num_epochs=3, prompts_per_round=5, seed=1)
    epochs = [layout[start : start + 10] for start in (0, 10, 20)]
    assert [sorted(epoch) for epoch in epochs] == [[(n, m) for m in range(10)] for n in range(3)]
    assert len({tuple(place for _, place in epoch) for epoch in epochs}) == 3
    assert layout != lay_out_prompts(10, num_epochs=3, prompts_per_round=5, seed=2)


def test_the_first_epoch_may_go_from_easy_to_hard():
    ranks = [2, 0, 1, 0, 2, 1, 0, 2, 1, 0, 0]
    layout = lay_out_prompts(11, num_epochs=2, prompts_per_round=4, seed=1, ranks=ranks)
    plain = lay_out_prompts(11, num_epochs=2, prompts_per_round=4, seed=1)
    # An unfilled round is left out at the end of each epoch.
    assert (len(plain), len(set(plain[:8])), len(set(plain[8:]))) == (16, 8, 8)
    assert sorted(layout[:8]) == sorted(plain[:8])  # what is left out is not the hardest
    assert [ranks[place] for _, place in layout[:8]] == sorted(ranks[p] for _, p in plain[:8])
    assert layout[8:] == plain[8:]


def test_grpo_asks_easy_prompts_first(taught_text_folder, text_examples, tmp_path):
    reward = Asked()
    levels = ["hard", "easy", None, "easy", "hard", "easy", None, "easy"]
    examples = [
        replace(one, fields={**one.fields, "difficulty": level})
        for one, level in zip(text_examples, levels, strict=True)
    ]
    reinforce(taught_text_folder, examples, tmp_path, reward=reward, easy_first=True)
    asked = [example.fields["difficulty"] for example, _ in reward.asked]
    assert asked == ["easy"] * 8 + [None] * 4 + ["hard"] * 4


@pytest.fixture(scope="module")
def sample(taught_text_folder, text_examples, tmp_path_factory):
    """Return what a policy that does not change is asked to say: completions of each prompt."""

    def run(base=taught_text_folder, **settings):
        reward, folder = Asked(), tmp_path_factory.mktemp("sampled")
        settings = {"learning_rate": 1e-12, "epochs": 2} | settings
        reinforce(base, text_examples, folder, reward=reward, **settings)
        asked = {}
        for example, token_ids in reward.asked:
            asked.setdefault(example.id, []).append(token_ids)
        return asked

    return run


@pytest.fixture(scope="module")
def sampled(sample):
    return sample()


def test_seeds_of_a_prompt_do_not_depend_on_what_a_round_leaves_out(text_examples):
    def list_seeds(prompts_per_round, seed=0):
        layout = lay_out_prompts(8, num_epochs=2, prompts_per_round=prompts_per_round, seed=0)
        rows = make_prompt_rows(text_examples, layout, seed=seed)[:]
        assert rows["place"] == [place for _, place in layout]
        return dict(zip(layout, rows["sampling_seed"], strict=True))

    every, fewer = list_seeds(4), list_seeds(3)
    assert len(set(every.values())) == 16
    assert len(fewer) == 12
    assert fewer.items() <= every.items()
    assert not set(every.values()) & set(list_seeds(4, seed=1).values())


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param({"prompts_per_step": 1}, marks=pytest.mark.slow),
        {"prompts_per_step": 2, "gradient_accumulation": 2, "steps_per_generation": 4},
        pytest.param({"speed": SpeedSettings(shared_prefix="off")}, marks=pytest.mark.slow),
        pytest.param({"max_new_tokens": 6}, marks=pytest.mark.slow),
    ],
    ids=lambda settings: next(iter(settings)),
)
def test_what_is_sampled_does_not_depend_on_what_is_sampled_beside_it(sample, sampled, settings):
    # Each visit and each completion is drawn apart.
    assert all(len(set(completions)) == 4 for completions in sampled.values())
    found = sample(**settings)
    assert found.keys() == sampled.keys()
    for id_, completions in sampled.items():
        assert [ids[:4] for ids in found[id_]] == completions


@pytest.mark.parametrize("shared_prefix", ["on", "off"])
def test_nothing_is_sampled_as_the_folder_of_the_base_wants_it(
    sample, sampled, taught_text_folder, tmp_path, shared_prefix
):
    """What the settings leave open is open: neither sampler takes it from the model's folder."""
    folder = tmp_path / "wishful"
    shutil.copytree(taught_text_folder, folder)
    file = folder / "generation_config.json"
    wishes = {"min_p": 1.0, "no_repeat_ngram_size": 1, "repetition_penalty": 1.8, "top_k": 1}
    wishes |= {"typical_p": 0.01, "suppress_tokens": [40, 41], "min_new_tokens": 4}
    file.write_text(json.dumps(json.loads(file.read_text()) | wishes))
    found = sample(folder, speed=SpeedSettings(shared_prefix=shared_prefix))
    assert found == sampled
    assert len({ids for group in found.values() for ids in group}) > len(found)


END = 7


class ByText:
    """Scores what the text says; remembers what it was given."""

    def __init__(self, name):
        self.name = name
        self.given = []

    def __call__(self, example, completion):
        self.given.append((example, completion))
        value = completion.text.split(self.name)[1].split()[0]
        if value == "None":
            return Score(None, "not there")
        return Score(float(value), invalid=completion.text.endswith("!"))


def test_a_reward_function_weighs_logs_and_shows_what_it_was_given(text_examples):
    rewards, logged = (ByText("a"), ByText("b")), {}
    parts = RewardSet({"a": (rewards[0], 3.0), "b": (rewards[1], 1.0)})
    texts = ["a 1 b 0", "a None b None", "a None b 0.5", "a 0 b 0 !"]
    values = RewardFunction(text_examples, parts, end_token_ids=[END])(
        prompts=["ignored"] * 4,
        completions=[[{"role": "assistant", "content": text}] for text in texts],
        completion_ids=[[1, END], [2], [], [3, END]],
        place=[2, 2, 5, 0],
        log_metric=logged.__setitem__,
    )
    assert values == [0.75, None, None, 0.0]
    assert logged == pytest.approx(
        {
            "invalid": 0.25,
            "unscored": 0.5,
            "reward/a": 0.5,
            "reward/a_std": 0.5,
            "reward/b": 0.5 / 3,
            "reward/b_std": (((0.5 - 0.5 / 3) ** 2 + 2 * (0.5 / 3) ** 2) / 3) ** 0.5,
        }
    )
    given = rewards[0].given
    assert [example for example, _ in given] == [text_examples[place] for place in (2, 2, 5, 0)]
    assert [c.finish_reason for _, c in given] == ["stop", "length", "length", "stop"]
    assert [c.token_ids for _, c in given] == [(1, END), (2,), (), (3, END)]


RISING = {"temperature": 2.0, "temperature_warmup": {"start": 0.5, "steps": 2}}


def train_warming(base, examples, folder, **settings):
    policy, reward = load_policy(base), Asked()
    reinforce(policy, examples, folder, reward=reward, **({"learning_rate": 1e-9} | settings))
    return policy, reward, [row for row in read_jsonl(folder / "metrics.jsonl") if "loss" in row]


def test_it_rises_in_a_straight_line_and_stays():
    settings = GrpoSettings.model_validate(RISING)
    assert [find_temperature(settings, step=n) for n in range(4)] == [0.5, 1.25, 2.0, 2.0]
    assert find_temperature(GrpoSettings(temperature=0.7), step=5) == 0.7


@pytest.mark.parametrize(
    ("beta", "speed"),
    [
        (0.1, "auto"),
        *(
            pytest.param(*which, marks=pytest.mark.slow)
            for which in ((0.1, "off"), (0.0, "auto"), (0.0, "off"))
        ),
    ],
)
def test_each_round_is_scored_at_the_temperature_that_it_was_sampled_at(
    taught_text_folder, text_examples, tmp_path, monkeypatch, speed, beta
):
    from groupwise.training.fast.trainer import FastGRPOTrainer

    scored = []

    def keep(trainer, model, ids, *rest, **named):
        found = compute(trainer, model, ids, *rest, **named)
        scored.append((trainer.temperature, found[0].detach().clone()))
        return found

    compute = FastGRPOTrainer._get_per_token_logps_and_entropies
    monkeypatch.setattr(FastGRPOTrainer, "_get_per_token_logps_and_entropies", keep)
    policy, reward, rows = train_warming(
        taught_text_folder,
        text_examples,
        tmp_path,
        **RISING,
        epochs=2,
        beta=beta,
        speed={"shared_prefix": speed},
    )
    assert [row["temperature"] for row in rows] == pytest.approx([0.5, 1.25, 2.0, 2.0])
    # The rate is next to nothing, so the policy of every round is the one at hand.
    for number, temperature in enumerate((0.5, 1.25)):
        asked = reward.asked[8 * number : 8 * number + 8]
        passes = [found for given, found in scored if given == temperature]
        assert passes
        for got, row in ((got, row) for p in passes for got, row in zip(p, asked, strict=True)):
            wanted = torch.as_tensor(score_alone(policy, *row, temperature=temperature))
            torch.testing.assert_close(got[: len(wanted)], wanted, atol=1e-3, rtol=1e-3)


def test_what_is_sampled_depends_on_it(taught_text_folder, text_examples, tmp_path):
    _, cold, _ = train_warming(
        taught_text_folder,
        text_examples,
        tmp_path / "cold",
        temperature=2.0,
        temperature_warmup={"start": 1e-3, "steps": 1},
    )
    groups: dict[str, set[tuple[int, ...]]] = {}
    for example, ids in cold.asked[:8]:
        groups.setdefault(example.id, set()).add(tuple(ids))
    assert {len(found) for found in groups.values()} == {1}  # next to greedy
    assert len({tuple(ids) for _, ids in cold.asked[8:]}) > 4


def test_a_trainer_with_another_head_is_refused():
    class Model:
        def forward(self):
            return None

    accelerator = SimpleNamespace(unwrap_model=lambda model: model)
    trainer = SimpleNamespace(
        temperature=1.0, model=Model(), ref_model=None, accelerator=accelerator
    )
    with pytest.raises(TrainingError, match="temperature_warmup"):
        set_temperature(trainer, 0.5)


def test_training_ends_after_so_many_steps(taught_text_folder, text_examples, tmp_path):
    _, _, rows = train_warming(taught_text_folder, text_examples, tmp_path, epochs=9, max_steps=3)
    assert [(row["step"], row["epoch"]) for row in rows] == [(1, 0.5), (2, 1.0), (3, 1.5)]
    assert rows[-1]["learning_rate"] < rows[0]["learning_rate"] / 2


@pytest.mark.slow
def test_the_epochs_end_it_before(taught_text_folder, text_examples, tmp_path):
    _, _, rows = train_warming(taught_text_folder, text_examples, tmp_path, epochs=1, max_steps=99)
    assert [row["epoch"] for row in rows] == [0.5, 1.0]
