"""Rounds that are sampled before the updates of the one before: what is said, weighed and kept."""

from contextlib import nullcontext
from threading import Event

import pytest
import torch

from groupwise.core import TrainingError
from groupwise.training import GrpoSettings
from groupwise.training.fast import ahead, trainer
from groupwise.training.settings import AheadSettings, SpeedSettings

SIZE = 3
NUM_ROUNDS = 3
OFTEN = {"learning_rate": 0.02}
SIZES = [[(16, 16)], [(24, 16)]]


@pytest.fixture
def make(pairs, grpo):
    """Make a trainer with three rounds of two prompts each, and the rows of each round."""

    def run(family="qwen2", trained="full", *, ahead=None, is_ahead=True, **options):
        sizes = SIZES if family.endswith("vl") else None
        rounds = []
        for number in range(NUM_ROUNDS):
            rows = grpo.make_rows(1, lengths=(1 + number, 5 - number), sizes=sizes)
            rounds.append(
                [row | {"place": 2 * number + n, "sampling_seed": n} for n, row in enumerate(rows)]
            )
        stepped = pairs.make(
            family,
            trained,
            speed=SpeedSettings(shared_prefix="on"),
            ahead=(ahead or AheadSettings()) if is_ahead else None,
            **OFTEN | options,
        )
        own = stepped.trainer
        own.train_dataset = [row for rows in rounds for row in rows]
        num_uses = own.args.steps_per_generation * own.num_iterations
        own.state.max_steps = NUM_ROUNDS * num_uses // own.args.gradient_accumulation_steps
        return stepped, [[row for row in rows for _ in range(SIZE)] for rows in rounds]

    return run


def list_said(batch):
    masks = batch["completion_mask"].bool()
    return [ids[mask].tolist() for ids, mask in zip(batch["completion_ids"], masks, strict=True)]


def score_plainly(trainer, batch):
    """Return log-probabilities by the trainer's weights, in passes of its parent class."""
    shares, trainer._shares = trainer._shares, False
    try:
        ids, mask = (
            torch.cat([batch[f"prompt_{kind}"], batch[f"completion_{kind}"]], 1)
            for kind in ("ids", "mask")
        )
        names = ("pixel_values", "image_grid_thw", "num_images", "mm_token_type_ids")
        named = {name: batch[name] for name in names if batch.get(name) is not None}
        with torch.no_grad():
            return trainer._get_per_token_logps_and_entropies(
                trainer.model, ids, mask, batch["completion_ids"].shape[1], **named
            )[0]
    finally:
        trainer._shares = shares


def put(trainer, weights):
    for name, parameter in trainer.model.named_parameters():
        if name in weights:
            parameter.data.copy_(weights[name])


def score_with(stepped, weights, batch):
    """Return what weights say of a batch; the trainer keeps its own."""
    kept = stepped.list_weights()
    put(stepped.trainer, weights)
    try:
        return score_plainly(stepped.trainer, batch)
    finally:
        put(stepped.trainer, kept)


@pytest.mark.parametrize(
    ("family", "trained"),
    [
        ("qwen2", "full"),
        pytest.param("qwen2", "last", marks=pytest.mark.slow),
        pytest.param("qwen2_5_vl", "sft", marks=pytest.mark.slow),
    ],
)
def test_a_round_is_said_by_the_weights_before_the_last_updates(make, family, trained):
    ahead, rounds = make(family, trained)
    fresh = [make(family, trained, is_ahead=False)[0] for _ in rounds]
    for number, rows in enumerate(rounds):
        weights = ahead.list_weights()
        ahead.update(rows, seed=number)
        # Whoever has these weights says the next round, and this one if it is the first.
        for round_, other in enumerate(fresh):
            if round_ == number + 1 or round_ == number == 0:
                put(other.trainer, weights)
                other.update(rounds[round_], apply=False)
    said = [list_said(batch) for batch in ahead.batches]
    assert said == [list_said(other.batches[-1]) for other in fresh]
    assert len(said) == NUM_ROUNDS
    assert ahead.trainer._ahead is None


@pytest.mark.parametrize("family", ["qwen2", pytest.param("qwen2_5_vl", marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "options", [pytest.param({}, marks=pytest.mark.slow), {"num_iterations": 2, "beta": 0.1}]
)
def test_losses_are_weighed_by_the_policy_over_the_one_that_sampled(make, family, options):
    cut = AheadSettings(correction="token_truncate", ratio_max=1.05)
    stepped, rounds = make(family, ahead=cut, **options)
    num_uses = stepped.trainer.num_iterations
    for number, rows in enumerate(rounds):
        weights = stepped.list_weights()
        sampled = stepped.trainer._ahead.result() if number else None
        for use in range(num_uses):
            stepped.update(rows, seed=number * num_uses + use)
        if sampled is None:
            continue
        batch = stepped.batches[-1]
        mask = batch["completion_mask"].bool()
        assert list_said(batch) == sampled.completion_ids
        before = torch.tensor([value for row in sampled.log_probs for value in row])
        ratio = (score_with(stepped, weights, batch)[mask] - before).exp()
        assert (batch["importance_sampling_ratio"][mask] - ratio.clamp(max=1.05)).abs().max() < 1e-4
        assert (ratio - 1).abs().max() > 0.01
    metrics = stepped.list_metrics()
    assert len(metrics["ahead/ratio_mean"]) == NUM_ROUNDS - 1
    assert all(0 < value <= 1 for value in metrics["ahead/effective"])
    assert max(metrics["ahead/beyond"]) > 0


def test_what_weighs_twice_as_much_costs_twice_as_much(make):
    stepped, rounds = make()
    for number in range(2):
        stepped.update(rounds[number], seed=number, apply=number == 0)
    [inputs] = stepped.trainer._buffered_inputs
    ratio = inputs["importance_sampling_ratio"]
    loss, other = (
        float(
            stepped.trainer._compute_loss(
                stepped.trainer.model, inputs | {"importance_sampling_ratio": r}
            )
        )
        for r in (ratio, 2 * ratio)
    )
    assert other == pytest.approx(2 * loss, rel=1e-4)
    assert abs(loss) > 1e-4


def test_weights_that_do_not_move_train_as_if_sampled_in_time(make, grpo):
    """Rewards, advantages and gradients are those of a round that is sampled when it is due."""
    both = [make(is_ahead=is_ahead, beta=0.1) for is_ahead in (True, False)]
    for number in range(NUM_ROUNDS):
        ahead, on_time = (
            stepped.update(rounds[number], seed=number, apply=False) for stepped, rounds in both
        )
        batches = [stepped.batches[-1] for stepped, _ in both]
        assert list_said(batches[0]) == list_said(batches[1])
        assert batches[0]["advantages"].equal(batches[1]["advantages"])
        assert grpo.measure_difference(on_time.gradients, ahead.gradients) < 1e-4
    names = {
        name
        for name in both[1][0].list_metrics()
        if not name.startswith(("step_time", "profiling"))
    }
    for name in names:
        own, other = (stepped.list_metrics()[name] for stepped, _ in both)
        assert own == pytest.approx(other, abs=1e-4), name


def test_without_correction_nothing_is_weighed_and_all_is_told(make):
    stepped, rounds = make(ahead=AheadSettings(correction=None))
    for number, rows in enumerate(rounds):
        stepped.update(rows, seed=number)
    assert all("importance_sampling_ratio" not in batch for batch in stepped.batches)
    assert max(stepped.list_metrics()["ahead/ratio_max"]) > 1.01


def test_a_round_of_other_prompts_is_refused(make):
    stepped, rounds = make()
    stepped.update(rounds[0])
    with pytest.raises(TrainingError, match="for other prompts"):
        stepped.update(rounds[2])


@pytest.fixture
def slow_server(fixtures, policies, grpo, monkeypatch):
    """A fake vLLM server that answers only when it is let, but for the first round."""
    end = policies.find_base("qwen2").generation_config.eos_token_id
    kind = fixtures("fake_vllm").make_fake_vllm(
        policies.find_base("qwen2"), grpo.write_completions(2 * SIZE, end=end)
    )
    own, let, answered = kind.generate, Event(), Event()

    def generate(self, *given, **named):
        is_first, self.was_asked = not hasattr(self, "was_asked"), True
        assert is_first or let.wait(60)
        found = own(self, *given, **named)
        if not is_first:
            answered.set()
        return found

    kind.generate = generate
    monkeypatch.setattr("trl.trainer.grpo_trainer.VLLMGeneration", kind)
    return let, answered


def test_a_server_samples_while_the_trainer_learns(make, slow_server, monkeypatch):
    let, answered = slow_server
    seeded = []
    monkeypatch.setattr(ahead, "draw_from_seeds", lambda _, rows: nullcontext(seeded.append(rows)))
    monkeypatch.setattr(trainer, "draw_from_seeds", lambda *_: nullcontext())
    stepped, rounds = make(use_vllm=True, vllm_mode="server")
    own = stepped.trainer.optimizer.step

    def step(*given, **named):
        """Within an update the next round is asked for, and answered."""
        assert not answered.is_set()
        let.set()
        assert answered.wait(60)
        return own(*given, **named)

    stepped.trainer.optimizer.step = step
    before = stepped.list_weights()
    stepped.update(rounds[0])
    stepped.trainer.optimizer.step = own
    assert len(stepped.trainer.vllm_generation.syncs) == 2
    sampled = stepped.trainer._ahead.result()
    after = stepped.list_weights()
    assert any(not before[name].equal(after[name]) for name in before)
    stepped.update(rounds[1], seed=1, apply=False)
    assert seeded[0] == rounds[1]
    batch = stepped.batches[-1]
    mask = batch["completion_mask"].bool()
    mu = torch.tensor([value for row in sampled.log_probs for value in row])
    assert list_said(batch) == sampled.completion_ids
    assert (batch["sampling_per_token_logps"][mask] - mu).abs().max() == 0
    # What it told is of the weights that it was sent, not of those that were learned meanwhile.
    assert (score_with(stepped, before, batch)[mask] - mu).abs().max() < 1e-4
    assert (score_with(stepped, after, batch)[mask] - mu).abs().max() > 1e-3


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"refill": {}}, "cannot be refilled"),
        ({"vllm": {}}, "set vllm.mode to server"),
        ({"ahead": {"ratio_max": None}}, "needs ahead.ratio_max"),
    ],
)
def test_what_does_not_go_with_it_is_refused(settings, sentence):
    with pytest.raises(ValueError, match=sentence):
        GrpoSettings.model_validate({"ahead": {}} | settings)
