"""Training of the selector of demo_selection: episodes, and scores of single candidates."""

import math
import random
import signal
import subprocess
import sys
from dataclasses import replace

import pytest
import selector_job as jobs
import torch
from demonstrations import POOL_SIZE, SIZE, make_asked
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional

from groupwise.core import ConfigError, TrainingError, read_json, read_jsonl
from groupwise.training.fast.round import find_dead_groups
from groupwise_drawn.dialects import COLORS
from groupwise_recipes.demo_selection.choosing import choose_by_baseline
from groupwise_recipes.demo_selection.episodes import draw_episode
from groupwise_recipes.demo_selection.objectives import GrpoObjective, check_first_step, compute_rce
from groupwise_recipes.demo_selection.pointwise import (
    choose_by_pointwise,
    fit_pointwise,
    read_pointwise,
    write_pointwise,
)
from groupwise_recipes.demo_selection.recorded_groups import RecordedGroups, keep_best
from groupwise_recipes.demo_selection.selector import PointerSelector
from groupwise_recipes.demo_selection.settings import SelectorGrpoSettings
from groupwise_recipes.demo_selection.training import measure_rce


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Uninterrupted trainings, each done once; random numbers of others are left alone."""
    folder = tmp_path_factory.mktemp("whole")
    torch.manual_seed(5)
    before = torch.get_rng_state()
    jobs.run_rce(folder / "rce")
    jobs.run_grpo(folder / "grpo")
    assert before.equal(torch.get_rng_state())
    return folder


def read_rows(folder):
    rows = read_jsonl(folder / "metrics.jsonl")
    return [{key: value for key, value in row.items() if key != "step_s"} for row in rows]


def read_weights(path):
    return PointerSelector.load(path).state_dict()


def assert_same(folder, whole):
    for epoch in (1, 2, 3):
        name = f"epoch-{epoch}.safetensors"
        weights, expected = read_weights(folder / name), read_weights(whole / name)
        assert [n for n in expected if not expected[n].equal(weights[n])] == []
    assert read_rows(folder) == read_rows(whole)
    files = {path.name for path in folder.iterdir()}
    assert files == {path.name for path in whole.iterdir()}
    assert not {name for name in files if name.startswith(("checkpoint", "progress"))}


@pytest.mark.slow
def test_killed_after_an_epoch_it_ends_as_if_uninterrupted(whole, tmp_path):
    folder = tmp_path / "training"
    command = [sys.executable, jobs.__file__, "grpo", str(folder), "3"]
    child = subprocess.run(command, capture_output=True, check=False, timeout=300)
    assert child.returncode == -signal.SIGKILL, child.stderr
    assert (folder / "checkpoint-3" / "complete").exists()
    assert read_json(folder / "progress.json", dict)["num_steps"] == 9
    # As if it had been killed in the second epoch: its rows are there, and are written again.
    with (folder / "metrics.jsonl").open("a") as stream:
        stream.write('{"step": 4, "loss": 7.0}\n')
    jobs.run_grpo(folder)
    assert_same(folder, whole / "grpo")


def test_stopped_while_a_checkpoint_is_written(whole, tmp_path, monkeypatch):
    mark = jobs.training.mark_complete

    def tear(checkpoint):
        if checkpoint.name == "checkpoint-6":
            raise InterruptedError
        mark(checkpoint)

    with monkeypatch.context() as patch:
        patch.setattr(jobs.training, "mark_complete", tear)
        with pytest.raises(InterruptedError):
            jobs.run_rce(tmp_path)
    assert (tmp_path / "checkpoint-6").is_dir()
    jobs.run_rce(tmp_path)
    assert_same(tmp_path, whole / "rce")


@pytest.mark.parametrize("kind", ["rce", "grpo"])
def test_epochs_differ(kind, whole):
    """Otherwise equality above would show nothing."""
    weights = [read_weights(whole / kind / f"epoch-{n}.safetensors") for n in (1, 2, 3)]
    assert not weights[0]["project.weight"].equal(weights[1]["project.weight"])
    assert not weights[1]["project.weight"].equal(weights[2]["project.weight"])


def test_the_log_of_grpo_adds_up(whole):
    rows = read_rows(whole / "grpo")
    assert [row["step"] for row in rows] == [2, 3, 4, 6, 8, 9]
    assert [row["epoch"] for row in rows] == pytest.approx([2 / 3, 1, 4 / 3, 2, 8 / 3, 3], abs=1e-4)
    for row in rows:
        assert row["loss"] == pytest.approx(row["ppo_loss"] + row["beta"] * row["kl"], abs=5e-6)
        assert row["dead_groups"] == row["num_dead_groups"] / row["num_groups"]
        assert 0 < row["advantage_std"] < row["advantage_max"] <= 5
    assert len({row["beta"] for row in rows}) > 1
    # What is the same in every step of an epoch is logged as it is, not as a mean of itself.
    assert {math.frexp(row["beta"] / rows[0]["beta"])[0] for row in rows} == {0.5}
    assert rows[0]["beta"] == 0.12
    assert [row["step"] for row in rows if "eval_loss" in row] == [3, 6, 9]
    budget = read_json(whole / "grpo" / "budget.json", dict)
    assert (budget["num_steps"], budget["num_looks"]) == (9, 3)


def test_dead_groups_are_counted_and_so_are_those_that_the_curriculum_makes(tmp_path):
    jobs.run_grpo(tmp_path, log_every_steps=None)
    rewards = jobs.make_groups().rewards
    before, after = (int(find_dead_groups(r).sum()) for r in (rewards, keep_best(rewards, 3)))
    assert before < after
    epochs = read_rows(tmp_path)
    assert [row["step"] for row in epochs] == [3, 6, 9]
    assert [row["num_dead_groups"] for row in epochs] == [after, before, before]
    assert [row["num_dead_by_curriculum"] for row in epochs] == [after - before, 0, 0]
    assert all(row["num_groups"] == len(rewards) for row in epochs)


def test_the_first_step_is_on_policy(tmp_path):
    jobs.run_grpo(tmp_path, epochs=1, batch_size=10, curriculum=())
    result = read_json(tmp_path / "on_policy.json", dict)
    assert result["num_tokens"] == int(jobs.make_groups().present.sum())
    assert result["max_log_ratio"] <= result["tolerance"] == 1e-6
    [row] = read_rows(tmp_path)
    assert (row["kl"], row["clipped"]) == (pytest.approx(0, abs=1e-6), 0)
    # ρ = 1: the loss is minus the mean advantage, which is 0 in groups without a limit.
    assert row["ppo_loss"] == pytest.approx(0, abs=1e-6)


def test_the_penalty_of_grpo_is_that_of_the_ratio(tmp_path):
    groups, old = jobs.make_groups(), torch.full((jobs.NUM_QUERIES, jobs.NUM_LISTS), -3.0)
    settings = SelectorGrpoSettings(beta=0.12)
    objective = GrpoObjective(groups, settings, old_log_probs=old, record=tmp_path / "check")
    objective.load_state_dict({"beta": 0.12, "old_log_probs": old})
    loss, values = objective.compute(old + 0.5, torch.arange(len(groups)), done=0.0)
    assert values["kl"] == pytest.approx(math.exp(0.5) - 0.5 - 1)
    assert float(loss) == pytest.approx(values["ppo_loss"] + 0.12 * values["kl"])


def test_dropout_in_grpo_and_nothing_to_learn_are_refused(tmp_path, monkeypatch):
    selector = jobs.make_selector()
    selector.dropout.forward = lambda values: functional.dropout(values, 0.5, training=True)
    with pytest.raises(TrainingError, match=r"on-policy check failed.*look for dropout"):
        jobs.run_grpo(tmp_path / "dropout", selector=selector)
    assert not (tmp_path / "dropout" / "on_policy.json").exists()
    groups = jobs.make_groups()
    groups.rewards.mul_(0)
    monkeypatch.setattr(jobs, "make_groups", lambda *_: groups)
    with pytest.raises(TrainingError, match="nothing to learn in epoch 1; got equal rewards"):
        jobs.run_grpo(tmp_path / "equal")


@pytest.mark.parametrize("gap", [3e-6, -3e-6, float("nan")])
def test_a_ratio_that_is_not_1_is_refused(gap):
    old = torch.tensor([-1.0, -2.0])
    assert check_first_step(old, old).max_kl == 0
    with pytest.raises(TrainingError, match="expected at most 1e-06"):
        check_first_step(old + torch.tensor([0.0, gap]), old)


def test_grpo_moves_to_what_earns_more_and_a_great_beta_holds_it_back(tmp_path):
    found = {}
    for beta in (0.0, 5.0):
        changes = {"target_kl": None, "curriculum": (), "learning_rate": 2e-3, "beta": beta}
        jobs.run_grpo(tmp_path / str(beta), epochs=25, log_every_steps=None, **changes)
        found[beta] = read_rows(tmp_path / str(beta))
    free, held = found[0.0], found[5.0]
    assert free[-1]["reward"] > free[0]["reward"] + 0.015
    assert held[-1]["kl"] < free[-1]["kl"] / 5


def test_rce_learns_and_its_temperature_falls_but_that_of_validation_is_1(tmp_path):
    groups, selector = jobs.make_groups(), jobs.make_selector().eval()
    log_probs = selector.log_probs(groups.queries, groups.pools, groups.lists)
    losses = compute_rce(log_probs, groups.rewards, temperature=1.0)
    before = measure_rce(selector.train(), groups)
    assert before == pytest.approx(float(losses.mean().detach()))
    trained = jobs.run_rce(tmp_path, epochs=25, log_every_steps=1)
    assert measure_rce(trained, groups) < before - 0.5
    taus = [row["tau"] for row in read_rows(tmp_path)]
    assert taus == pytest.approx([2.0 - 1.5 * step / 75 for step in range(75)])
    assert not trained.training


def test_a_frozen_backbone_stays(tmp_path):
    before = jobs.make_selector().state_dict()
    after = jobs.run_grpo(tmp_path, freeze_backbone=True).state_dict()
    same = {name for name, value in after.items() if value.equal(before[name])}
    assert same == {"project.weight", "project_query.weight", "project_item.weight"}


SCENES = {color: [2 * number, 2 * number + 1] for number, color in enumerate(sorted(COLORS))}
COLOR_OF = {place: color for color, places in SCENES.items() for place in places}


@given(st.sets(st.sampled_from(list(COLORS)), min_size=1), st.integers(1, 6), st.integers(0, 99))
def test_what_is_asked_for_was_shown_and_the_last_word_counts(colors, num_shots, seed):
    scenes = {color: [2 * number, 2 * number + 1] for number, color in enumerate(sorted(colors))}
    turns = draw_episode(scenes, num_shots=num_shots, rng=random.Random(seed))
    shown = {}
    asked = [turn for turn in turns if turn.is_taught]
    assert [turn.is_taught for turn in turns] == [False] * num_shots + [True] * len(asked)
    for turn in turns:
        cell = turn.question.split()[-1], sorted(colors)[turn.place // 2]
        if turn.is_taught:
            assert turn.word == shown.pop(cell)
        else:
            assert turn.word != shown.get(cell)
            shown[cell] = turn.word
    assert not shown


def name_cell(turn):
    return turn.question.split()[-1], COLOR_OF[turn.place]


def draw_many(num_shots, *, number=600):
    rng = random.Random(0)
    return [draw_episode(SCENES, num_shots=num_shots, rng=rng) for _ in range(number)]


def test_of_three_shots_three_in_ten_revise_one_and_the_order_of_questions_says_nothing():
    num_revised = num_sorted = 0
    places = [0, 0, 0]
    episodes = draw_many(3)
    for turns in episodes:
        shown = turns[:3]
        cells, asked = list(map(name_cell, shown)), list(map(name_cell, turns[3:]))
        num_sorted += asked == sorted(asked)
        if len(asked) == 3:
            places[asked.index(cells[0])] += 1
        if len(set(cells)) < 3:
            num_revised += 1
            assert len(set(cells)) == 2
            assert cells.count(cells[-1]) == 2
            assert shown[cells.index(cells[-1])].word != shown[-1].word
    assert 150 < num_revised < 210
    assert num_sorted < 300
    assert min(places) > 100
    assert all(len(turns) == 2 for turns in draw_many(1, number=50))
    turns = [turn for episode in episodes for turn in episode]
    for is_taught in (False, True):
        assert {turn.place for turn in turns if turn.is_taught == is_taught} == set(COLOR_OF)


def test_shown_turns_often_share_a_dialect_or_a_colour():
    pairs = [tuple(map(name_cell, turns[:2])) for turns in draw_many(2)]
    different = [(one, other) for one, other in pairs if one != other]
    for part in (0, 1):
        share = sum(one[part] == other[part] for one, other in different) / len(different)
        assert 0.3 < share < 0.6


ASKED = make_asked()
USEFUL = 3


def record(num_queries=60, *, seed=0, greatest=1.0):
    """Return lists of two that earn something if one feature is of the query's sign in both."""
    draw = torch.Generator().manual_seed(seed)
    queries = torch.randn(num_queries, SIZE, generator=draw)
    pools = torch.randn(num_queries, POOL_SIZE, SIZE, generator=draw)
    lists = torch.rand(num_queries, 4, POOL_SIZE, generator=draw).argsort(-1)[..., :2]
    alike = (queries[:, None, USEFUL] * pools[..., USEFUL]).gather(1, lists.flatten(1)) > 0
    rewards = alike.view(lists.shape).all(-1) * greatest
    present = torch.ones(num_queries, 4, dtype=torch.bool)
    return RecordedGroups(queries, pools, lists, rewards, present, max_reward=greatest)


def test_the_feature_that_pays_has_the_greatest_weight_whatever_its_size(tmp_path):
    weights = fit_pointwise([record(), record(seed=1)])
    assert weights.shape == (SIZE,)
    assert int(weights.argmax()) == USEFUL
    assert weights[USEFUL] > 3 * weights.abs().sort().values[-2]
    write_pointwise(weights, tmp_path)
    assert torch.equal(read_pointwise(tmp_path), weights)
    groups = record()
    factors = torch.ones(SIZE)
    factors[USEFUL] = 0.01
    small = fit_pointwise([replace(groups, queries=groups.queries * factors)])
    assert torch.allclose(small * factors, fit_pointwise([groups]), atol=1e-5)


def test_a_share_of_the_reward_counts_as_much_as_it_is():
    groups = record()
    assert torch.allclose(fit_pointwise([groups]), fit_pointwise([record(greatest=2.0)]), atol=1e-6)
    shares = [replace(groups, rewards=groups.rewards * share) for share in (0.5, 0.75, 1)]
    half, most, all_of_it = (float(fit_pointwise([one])[USEFUL]) for one in shares)
    assert 0 < half < most < all_of_it


def test_lists_that_could_not_be_scored_and_features_that_never_differ_play_no_part():
    groups = record()
    present = torch.arange(4).expand(60, 4) < 3
    fewer = RecordedGroups(
        groups.queries, groups.pools, groups.lists[:, :3], groups.rewards[:, :3], present[:, :3]
    )
    absent = RecordedGroups(groups.queries, groups.pools, groups.lists, groups.rewards, present)
    assert torch.equal(fit_pointwise([fewer]), fit_pointwise([absent]))
    constant = torch.zeros(SIZE)
    constant[0] = 1
    groups.queries[:, 0] = groups.pools[..., 0] = 0.5
    assert fit_pointwise([groups])[0] == 0


def test_candidates_of_the_pool_are_ranked_by_weighted_products():
    alike = choose_by_pointwise(torch.ones(SIZE), ASKED, num_shots=3)
    assert alike == choose_by_baseline("nearest_both", ASKED, num_shots=3)
    weights = torch.randn(SIZE, generator=torch.Generator().manual_seed(1))
    [first] = {one[:1] for one in choose_by_pointwise(weights, ASKED, num_shots=2)[:1]}
    scores = {
        ASKED.train.ids[place]: float(
            (weights * ASKED.features.joined[0] * ASKED.train.joined[place]).sum()
        )
        for place in ASKED.pools.members[ASKED.queries[0].id]
    }
    assert first == (max(scores, key=lambda one: scores[one]),)
    with pytest.raises(ConfigError, match=f"expected from 1 to {POOL_SIZE}"):
        choose_by_pointwise(weights, ASKED, num_shots=POOL_SIZE + 1)
