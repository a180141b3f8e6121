"""Groups without a gradient are left out, counted, and may be replaced."""

import math
from collections import Counter

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from groupwise.training.fast.refill import Candidates
from groupwise.training.settings import RefillSettings, SpeedSettings

NUM_PROMPTS = 8
SIZE = 3


class Data:
    """Prompts of which some are dead or unscored, whatever is sampled."""

    def __init__(self, grpo, *, dead=(), unscored=(), has_pictures=False):
        self.dead, self.unscored = set(dead), set(unscored)
        self.asked = Counter()
        lengths = [1 + place % 4 for place in range(NUM_PROMPTS)]
        sizes = [[(16, 16 + 8 * (place % 3))] for place in range(NUM_PROMPTS)]
        rows = grpo.make_rows(1, lengths=lengths, sizes=sizes if has_pictures else None)
        self.rows = [row | {"place": place} for place, row in enumerate(rows)]

    def read(self, places, step):
        return [self.rows[place] | {"sampling_seed": 100 * step + place} for place in places]

    def reward(self, completion_ids, place, **_):
        self.asked.update(place)
        values = [(1 + math.sin(sum(ids))) / 2 for ids in completion_ids]
        values = [1.0 if p in self.dead else v for p, v in zip(place, values, strict=True)]
        return [None if p in self.unscored else v for p, v in zip(place, values, strict=True)]

    def start(self, *places):
        return [row for row in self.read(places, 1000) for _ in range(SIZE)]


@pytest.fixture
def make(pairs):
    def run(data, family="qwen2", *, trained="last", speed=None, refill=None, **options):
        settings = RefillSettings(**(refill or {}))
        candidates = Candidates(data.read, NUM_PROMPTS, settings.max_tries, seed=0)
        return pairs.make(
            family,
            trained,
            speed=speed or SpeedSettings(shared_prefix="on"),
            reward=data.reward,
            candidates=candidates,
            **options,
        )

    return run


@pytest.mark.parametrize(
    ("trained", "family"),
    [
        ("last", "qwen2_5_vl"),
        pytest.param("full", "qwen2", marks=pytest.mark.slow),
        pytest.param("last", "qwen2", marks=pytest.mark.slow),
        pytest.param("full", "qwen2_5_vl", marks=pytest.mark.slow),
    ],
)
def test_a_filled_round_is_the_parents_round_of_its_prompts(
    grpo, pairs, make, keep_order, family, trained
):
    """Whatever sampling has kept of each group."""
    data = Data(grpo, dead=[0, 5], has_pictures=family.endswith("vl"))
    options = {"beta": 0.1, "num_iterations": 2}
    stepped = make(data, family, trained=trained, **options)
    inputs = data.start(0, 1)
    fast = stepped.update(inputs, apply=False)
    places = [row["place"] for row in inputs[::SIZE]]
    assert places[1] == 1
    assert places[0] not in (0, 1, 5)
    said = stepped.batches[-1]
    lengths = said["completion_mask"].sum(1).tolist()
    parent = pairs.make(family, trained, reward=data.reward, **options)
    parent.say([ids[:n].tolist() for ids, n in zip(said["completion_ids"], lengths, strict=True)])
    expected = parent.update(inputs, apply=False)
    assert parent.batches[-1]["prompt_ids"].equal(said["prompt_ids"])
    assert parent.batches[-1]["advantages"].allclose(said["advantages"], atol=1e-5)
    assert grpo.measure_log_probs(expected, fast) < 1e-5
    assert grpo.measure_difference(expected.gradients, fast.gradients) < 1e-4


def test_what_is_sampled_follows_from_the_row(grpo, make):
    """A candidate's completions are those that it has in a round of its own."""
    data = Data(grpo, dead=[0])
    stepped = make(data)
    inputs = data.start(0, 1)
    stepped.update(inputs, apply=False)
    found = stepped.batches[-1]["completion_ids"]
    again = make(Data(grpo))
    again.update(list(inputs), apply=False)
    expected = again.batches[-1]["completion_ids"]
    assert expected.shape == found.shape
    assert expected.equal(found)


def count(stepped):
    stepped.trainer.log(logs := {"loss": 0.0})
    return {name: logs.get(name, 0) for name in logs if name.startswith("num_")}


@pytest.mark.parametrize(
    ("dead", "unscored", "expected"),
    [
        # as laid out, dead of them, tried, dead of these, filled
        ((), (), (2, 0, 0, 0, 0)),
        ((0,), (), (2, 1, 1, 0, 1)),
        pytest.param((0, 1), (), (2, 2, 2, 0, 2), marks=pytest.mark.slow),
        (range(NUM_PROMPTS), (), (2, 2, 6, 6, 0)),
        pytest.param((0,), range(1, NUM_PROMPTS), (2, 2, 3, 3, 0), marks=pytest.mark.slow),
        ((), range(NUM_PROMPTS), (2, 2, 0, 0, 0)),
    ],
)
def test_counts_add_up(grpo, make, dead, unscored, expected):
    data = Data(grpo, dead=dead, unscored=unscored)
    stepped = make(data)
    stepped.update(data.start(0, 1))
    found = count(stepped)
    names = ["num_groups", "num_dead_groups"]
    names += ["num_refills", "num_dead_refills", "num_filled_groups"]
    assert tuple(found.get(name, 0) for name in names) == expected
    assert sum(data.asked.values()) == SIZE * (found["num_groups"] + found.get("num_refills", 0))
    advantages = stepped.batches[-1]["advantages"].view(-1, SIZE)
    num_alive = int((advantages != 0).any(1).sum())
    assert num_alive == expected[0] - expected[1] + expected[4]


def test_tokens_of_all_that_is_tried_are_counted(grpo, make):
    data = Data(grpo, dead=range(NUM_PROMPTS))
    stepped = make(data)
    lengths = []
    own = stepped.trainer._generate_single_turn

    def generate(*given, **named):
        output = own(*given, **named)
        lengths.append(sum(map(len, output[0])))
        return output

    stepped.trainer._generate_single_turn = generate
    stepped.update(data.start(0, 1))
    assert len(lengths) == 1 + 3
    assert count(stepped)["num_refill_tokens"] == sum(lengths[1:])


def test_metrics_are_of_the_prompts_as_they_were_laid_out(grpo, make):
    """Else the reward of a run with refills would be that of prompts chosen for having less."""
    data = Data(grpo, dead=[0, 1])
    stepped = make(data)
    stepped.update(data.start(0, 1))
    metrics = stepped.list_metrics()
    assert metrics["reward"] == [1.0]
    assert metrics["reward_std"] == [0.0]
    assert metrics["frac_reward_zero_std"] == [1.0]
    assert len(metrics["completions/mean_length"]) == 1


@pytest.mark.parametrize(
    "scale",
    [
        pytest.param("group", marks=pytest.mark.slow),
        "batch",
        pytest.param("none", marks=pytest.mark.slow),
    ],
)
def test_without_a_dead_group_nothing_changes(grpo, pairs, make, scale):
    data = Data(grpo)
    filled = make(data, scale_rewards=scale)
    plain = pairs.make(
        "qwen2", speed=SpeedSettings(shared_prefix="on"), reward=data.reward, scale_rewards=scale
    )
    updates = [stepped.update(data.start(2, 3)) for stepped in (filled, plain)]
    for name, gradient in updates[0].gradients.items():
        assert gradient.equal(updates[1].gradients[name])
    for name in ("reward", "reward_std", "frac_reward_zero_std", "completions/mean_length"):
        assert filled.list_metrics()[name] == pytest.approx(plain.list_metrics()[name])


def test_nothing_is_tried_beyond_the_data(grpo, make):
    data = Data(grpo, dead=range(NUM_PROMPTS))
    stepped = make(data, refill={"max_tries": 1000})
    stepped.update(data.start(0, 1))
    assert data.asked == dict.fromkeys(range(NUM_PROMPTS), SIZE)


def test_states_of_sampling_are_kept_for_filled_places(grpo, make):
    """Scoring then starts at the first trained block for every group of the round."""
    data = Data(grpo, dead=[0], has_pictures=True)
    stepped = make(data, "qwen2_5_vl")
    stepped.update(data.start(0, 1))
    kept = stepped.trainer._round
    assert sorted(kept.pictures) == [0, 1]
    assert sorted(kept.prefixes) == [0, 1]
    assert sorted(kept.tails) == list(range(2 * SIZE))


PLACES = st.lists(st.integers(0, NUM_PROMPTS - 1), unique=True)


CANDIDATES = Candidates(lambda *_: [], NUM_PROMPTS, max_tries=3, seed=3)


@given(without=PLACES, step=st.integers(0, 99))
def test_every_other_prompt_has_its_turn_once(without, step):
    found = CANDIDATES.order(without=without, step=step)
    assert sorted([*found, *without]) == list(range(NUM_PROMPTS))
    assert found == CANDIDATES.order(without=without, step=step)


def test_steps_try_others_in_another_order():
    orders = {tuple(CANDIDATES.order(without=(), step=step)) for step in range(9)}
    assert len(orders) > 5


REWARDS = {
    "one group dead": [1.0, 1.0, 1.0, 0.0, 0.5, 1.0],
    "one row at the mean": [0.0, 0.5, 1.0, 0.25, 0.5, 1.0],
    "nothing known of one": [0.0, None, 1.0, None, None, None],
    "one row known": [0.0, None, None, 0.5, 1.0, 0.75],
    "all dead": [1.0, 1.0, 1.0, 0.0, 0.0, 0.0],
    "nothing known": [None] * 6,
}
# Rows without a gradient, as their group is dead or they are at its mean; and groups that are dead.
SKIPPED = dict(zip(REWARDS, ((4, 1), (1, 0), (4, 1), (4, 1), (6, 2), (6, 2)), strict=True))
ALL_DEAD = ("all dead", "nothing known")


def give(rewards):
    return lambda completion_ids, **_: rewards[: len(completion_ids)]


@pytest.fixture
def compare(grpo, pairs, keep_order):
    def run(family, rewards, *, trained="sft", num_updates=2, **options):
        both = pairs.make_both(family, trained, reward=give(rewards), **options)
        for stepped in both:
            stepped.say(grpo.write_completions(6, end=stepped.trainer.eos_token_ids[0]))
        for seed in range(num_updates):
            rows = grpo.make_rows(3, family=family)
            parent, fast = (stepped.update(rows, seed=seed) for stepped in both)
            for name, gradient in parent.gradients.items():
                other = fast.gradients[name]
                assert (gradient - other).norm() <= 1e-4 * gradient.norm() + 1e-9
            assert fast.losses == pytest.approx(parent.losses, abs=1e-6)
        return both

    return run


@pytest.mark.parametrize(
    ("family", "case"),
    [
        *[("qwen2", case) for case in REWARDS],
        *[("qwen2_5_vl", case) for case in ("one group dead", "all dead")],
    ],
)
def test_gradients_are_the_parents_and_skipped_rows_are_counted(compare, family, case):
    _, fast = compare(family, REWARDS[case])
    for gradient in fast.list_weights().values():
        assert not gradient.isnan().any()
    num_skipped, num_dead = SKIPPED[case]
    assert fast.list_metrics()["skipped_rows"] == [pytest.approx(num_skipped / 6)] * 2
    logs = {"loss": 0.0}
    fast.trainer.log(logs)
    assert (logs["num_groups"], logs["num_dead_groups"]) == (4, 2 * num_dead)
    assert logs["num_skipped_rows"] == 2 * num_skipped
    fast.trainer.log(later := {"loss": 0.0})
    assert not [name for name in later if name.startswith("num_")]


@pytest.mark.parametrize(
    "loss",
    [
        pytest.param("grpo", marks=pytest.mark.slow),
        pytest.param("bnpo", marks=pytest.mark.slow),
        "dr_grpo",
        pytest.param("cispo", marks=pytest.mark.slow),
        "sapo",
        pytest.param("luspo", marks=pytest.mark.slow),
    ],
)
def test_every_loss(compare, loss):
    """The dead rows still count in means over rows and tokens."""
    compare("qwen2", REWARDS["one group dead"], loss_type=loss, num_iterations=2)


def test_sequence_level_ratios(compare):
    options = {"importance_sampling_level": "sequence", "num_iterations": 2}
    compare("qwen2", REWARDS["one group dead"], **options)


@pytest.mark.parametrize("case", ALL_DEAD)
@pytest.mark.parametrize("micro_batches", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_a_batch_without_a_live_row_has_a_gradient_of_zero(compare, case, micro_batches):
    options = {
        "per_device_train_batch_size": 6 // micro_batches,
        "gradient_accumulation_steps": micro_batches,
    }
    _, fast = compare("qwen2", REWARDS[case], num_updates=1, trained="all", **options)
    assert fast.list_metrics()["skipped_rows"] == [1.0] * micro_batches


def test_every_parameter_takes_part_without_a_live_row(grpo, pairs):
    """Its gradient is 0, not None: every process must take part in the backward pass."""
    stepped = pairs.make("qwen2", "all", speed=SpeedSettings(), reward=give([1.0] * 6))
    stepped.say(grpo.write_completions(6, end=2))
    trainer = stepped.trainer
    trainer.training_step(trainer.model, grpo.make_rows(3), None)
    found = [p.grad for p in trainer.model.parameters() if p.requires_grad]
    assert found
    for gradient in found:
        assert gradient is not None
        assert not gradient.any()


@pytest.mark.parametrize("case", ["one group dead", "nothing known"])
def test_entropy_is_defined(compare, case):
    """It is that of the rows that were scored."""
    parent, fast = compare("qwen2", REWARDS[case], num_updates=1)
    (expected,), (found,) = (s.list_metrics()["entropy"] for s in (parent, fast))
    assert found == pytest.approx(expected, rel=0.2)
    assert fast.list_metrics()["clip_ratio/region_mean"] == [0.0]


def count_tokens(stepped):
    """Tokens that enter the last block in training passes."""
    seen = []

    def count(_, given):
        if torch.is_grad_enabled():
            seen.append(sum(states.shape[:2].numel() for states in given))

    stepped.trainer.model.get_base_model().model.layers[-1].register_forward_pre_hook(count)
    return seen


@pytest.mark.parametrize(
    ("options", "skips"),
    [
        ({}, True),
        ({"beta": 0.1}, False),
        ({"entropy_coef": 0.1}, False),
        ({"top_entropy_quantile": 0.5}, False),
    ],
)
def test_skipped_only_where_nothing_else_has_a_gradient(compare, options, skips):
    _, fast = compare("qwen2", REWARDS["one group dead"], **options)
    assert ("skipped_rows" in fast.list_metrics()) == skips


def test_dead_rows_are_not_computed(grpo, pairs):
    def find(speed):
        rewards = give(REWARDS["one group dead"])
        stepped = pairs.make("qwen2", "last", speed=speed, reward=rewards)
        stepped.say(grpo.write_completions(6, end=2))
        seen = count_tokens(stepped)
        stepped.update(grpo.make_rows(3))
        return sum(seen)

    assert find(SpeedSettings()) < 0.7 * find(SpeedSettings(skip_dead_groups=False))


def test_equal_rewards_are_dead_whatever_the_rounding(grpo, pairs):
    """In fp32 the mean of 0.9, 0.9 and 0.9 is not quite 0.9."""
    stepped = pairs.make("qwen2", speed=SpeedSettings(), reward=give([0.9, 0.9, 0.9, 0, 1, 0.3]))
    stepped.say(grpo.write_completions(6, end=2))
    stepped.update(grpo.make_rows(3))
    assert stepped.batches[0]["advantages"][:3].tolist() == [0.0, 0.0, 0.0]
    assert stepped.batches[0]["advantages"][3:].all()


def test_dead_rows_of_unlikely_tokens_stay_finite(grpo, pairs):
    """Their ratio is 1: that of a log-probability of 0 to the old one would be infinite."""
    rewards = give(REWARDS["one group dead"])
    stepped = pairs.make(
        "qwen2", speed=SpeedSettings(), reward=rewards, temperature=0.01, num_iterations=2
    )
    stepped.say(grpo.write_completions(6, end=2))
    update = stepped.update(grpo.make_rows(3))
    assert update.log_probs[0].min() < -100
    assert all(gradient.isfinite().all() for gradient in update.gradients.values())
