"""Log-probabilities, gradients and adapters are those of the parent class, in fp32."""

import pytest

from groupwise.training.settings import SpeedSettings

ONE_PICTURE = [[(16, 16)], [(24, 16)]]
TWO_PICTURES = [[(16, 24), (32, 16)], [(24, 24), (8, 16)]]
LOSSES = {
    "grpo": {"loss_type": "grpo"},
    "bnpo": {"loss_type": "bnpo"},
    "dr_grpo": {"loss_type": "dr_grpo", "scale_rewards": "none"},
    "dapo": {"loss_type": "dapo", "epsilon_high": 0.28},
    "cispo": {"loss_type": "cispo", "epsilon_high": 1.01},
    "sequence": {"loss_type": "grpo", "importance_sampling_level": "sequence"},
}
slow = pytest.mark.slow


@pytest.fixture
def compare(grpo, pairs, keep_order):
    """Step both trainers on the same rollouts; return them and check every step."""

    def run(family="qwen2", trained="sft", *, num_updates=2, rows=None, **options):
        both = pairs.make_both(family, trained, **options)
        if rows is None:
            sizes = ONE_PICTURE if family.endswith("vl") else None
            rows = grpo.make_rows(3, sizes=sizes)
        end = both[0].trainer.eos_token_ids[0]
        for stepped in both:
            stepped.say(grpo.write_completions(len(rows), end=end))
        updates = []
        for seed in range(num_updates):
            updates.append([stepped.update(rows, seed=seed) for stepped in both])
            parent, fast = updates[-1]
            assert grpo.measure_log_probs(parent, fast) < 1e-5
            assert grpo.measure_difference(parent.gradients, fast.gradients) < 1e-4
            assert fast.losses == pytest.approx(parent.losses, abs=1e-5)
        parent, fast = both
        assert grpo.measure_difference(parent.list_weights(), fast.list_weights()) < 1e-4
        assert fast.num_shared >= sum(len(update.log_probs) for _, update in updates)
        assert parent.num_shared == 0
        return both, updates

    return run


@pytest.mark.parametrize("beta", [0.0, 0.1])
@pytest.mark.parametrize("loss", LOSSES)
def test_losses(compare, loss, beta):
    """Two updates with the same completions, so that the ratio is not 1 in the second."""
    compare(beta=beta, num_iterations=2, learning_rate=3e-3, **LOSSES[loss])


@pytest.mark.parametrize(
    ("loss", "beta"),
    [
        ("dapo", 0.1),
        ("cispo", 0.0),
        *(pytest.param(loss, b, marks=slow) for loss in LOSSES for b in (0.0, 0.1)),
    ],
)
def test_losses_with_pictures(compare, loss, beta):
    compare("qwen2_5_vl", beta=beta, num_iterations=2, **LOSSES[loss])


@pytest.mark.parametrize(
    ("family", "trained"),
    [
        *[("qwen2", trained) for trained in ("last", "all", "sft", "fresh", "full", "top")],
        *[("qwen2_5_vl", trained) for trained in ("all", "everything")],
        ("qwen3_vl", "sft"),
        ("qwen3", "sft"),
        ("llama", "sft"),
        *[
            pytest.param(family, trained, marks=slow)
            for family in ("qwen3", "llama", "qwen2_5_vl", "qwen3_vl")
            for trained in ("last", "all", "fresh", "full", "top")
            if (family, trained) != ("qwen2_5_vl", "all")
        ],
        pytest.param("qwen3_vl", "everything", marks=slow),
    ],
)
def test_five_updates(compare, family, trained):
    """Of every family, with LoRA on some or all blocks, and with everything trained."""
    (parent, _), updates = compare(family, trained, num_updates=5, beta=0.1)
    assert len(updates[0][0].log_probs) == 2
    assert parent.list_metrics()["kl"][-1] > 1e-5


ROUNDS = {
    "accumulation": {"per_device_train_batch_size": 3, "gradient_accumulation_steps": 2},
    "several updates a round": {"per_device_train_batch_size": 3, "steps_per_generation": 2},
    "accumulation, iterations": {
        "per_device_train_batch_size": 3,
        "gradient_accumulation_steps": 2,
        "num_iterations": 2,
    },
    "split groups": {
        "per_device_train_batch_size": 2,
        "gradient_accumulation_steps": 3,
        "num_iterations": 2,
    },
}


@pytest.mark.parametrize(
    ("family", "round_"),
    [
        *[("qwen2", round_) for round_ in ROUNDS],
        ("qwen2_5_vl", "several updates a round"),
        ("qwen3_vl", "accumulation, iterations"),
        *[pytest.param("qwen2_5_vl", r, marks=slow) for r in ROUNDS if r[0] == "a"],
        *[pytest.param("qwen3_vl", r, marks=slow) for r in ROUNDS if r[0] == "s"],
    ],
)
def test_rounds(compare, family, round_):
    """Micro-batches and updates of one round, with the KL penalty."""
    compare(family, num_updates=3, beta=0.1, **ROUNDS[round_])


OPTIONS = {
    "temperature": {"temperature": 0.7},
    "padding": {"pad_to_multiple_of": 32},
    "batch scale": {"scale_rewards": "batch", "beta": 0.1},
    "entropy bonus": {"entropy_coef": 0.1},
    "high entropy": {"top_entropy_quantile": 0.5},
    "truncated": {"mask_truncated_completions": True, "beta": 0.1},
}


@pytest.mark.parametrize("option", OPTIONS)
def test_options(compare, option):
    compare(**OPTIONS[option])


@pytest.mark.parametrize("family", ["qwen2_5_vl", pytest.param("qwen3_vl", marks=slow)])
@pytest.mark.parametrize("option", ["padding", pytest.param("entropy bonus", marks=slow)])
def test_options_with_pictures(compare, option, family):
    compare(family, **OPTIONS[option])


@pytest.mark.parametrize(
    ("family", "trained"),
    [("qwen2", "sft"), ("qwen2_5_vl", "everything"), pytest.param("qwen3_vl", "full", marks=slow)],
)
def test_gradient_checkpointing(compare, family, trained):
    compare(family, trained, gradient_checkpointing=True, beta=0.1)


@pytest.mark.parametrize("trained", ["last", "all"])
def test_reentrant_checkpointing(compare, trained):
    """It takes gradients of the inputs, as re-entrant checkpointing of an adapter needs it."""
    compare(
        "qwen2",
        trained,
        gradient_checkpointing=True,
        gradient_checkpointing_kwargs={"use_reentrant": True},
        beta=0.1,
    )


@pytest.mark.parametrize("family", ["qwen2", pytest.param("qwen3_vl", marks=slow)])
def test_eager_attention(compare, eager_attention, family):
    compare(family, beta=0.1)


def test_ragged_prompts(compare, grpo):
    compare(rows=grpo.make_rows(2, lengths=(1, 19, 7)), num_generations=2, beta=0.1)


@pytest.mark.parametrize("family", ["qwen2_5_vl", "qwen3_vl"])
def test_two_pictures_of_different_sizes(compare, grpo, family):
    rows = grpo.make_rows(3, lengths=(9, 2), sizes=TWO_PICTURES)
    compare(family, rows=rows, beta=0.1, num_iterations=2)


@pytest.mark.parametrize("family", ["qwen2_5_vl", "qwen3_vl"])
def test_pictures_among_words_and_in_a_later_turn(compare, grpo, family):
    rows = grpo.mix(grpo.make_rows(3, lengths=(9, 2), sizes=TWO_PICTURES))
    compare(family, rows=rows, beta=0.1, num_iterations=2)


def test_different_numbers_of_pictures(compare, grpo):
    rows = grpo.make_rows(3, sizes=[[(16, 24)], [(24, 24), (8, 16), (16, 16)]])
    compare("qwen2_5_vl", rows=rows, beta=0.1)


def test_one_prompt_twice_in_a_batch(compare, grpo):
    """Two groups of one prompt that follow each other are computed as one and scored as two."""
    compare(rows=grpo.make_rows(6, lengths=(5,)), beta=0.1)


@pytest.mark.parametrize("off", ["trunk_cache", "vision_once", "prefill_once", "skip_dead_groups"])
def test_a_lever_off(compare, off):
    speed = SpeedSettings(shared_prefix="on", **{off: False})
    compare("qwen2_5_vl", speed=speed, beta=0.1, num_iterations=2)
