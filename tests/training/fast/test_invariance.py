"""What must not change a gradient, nor the model itself."""

import hashlib

import pytest
import torch

from groupwise.training.fast import round as rounds
from groupwise.training.settings import SpeedSettings

ON = SpeedSettings(shared_prefix="on")
WHOLE = {"num_generations": 4, "per_device_train_batch_size": 8, "beta": 0.1}
ONE_PICTURE = [[(16, 16)], [(24, 16)]]
LOSSES = ("grpo", "dr_grpo", "dapo")
each_loss = pytest.mark.parametrize(
    "loss", [one if one == "dapo" else pytest.param(one, marks=pytest.mark.slow) for one in LOSSES]
)
each_loss_and_pictures = pytest.mark.parametrize(
    ("family", "loss"),
    [
        ("qwen2", "dapo"),
        *[pytest.param("qwen2", loss, marks=pytest.mark.slow) for loss in LOSSES[:2]],
        *[pytest.param("qwen2_5_vl", loss, marks=pytest.mark.slow) for loss in LOSSES],
    ],
)


@pytest.fixture
def find_gradient(grpo, pairs):
    """Return the gradient of one optimizer step on two prompts of four completions."""

    def find(loss, *, family="qwen2", rows=None, said=None, seed=0, **options):
        speed = options.pop("speed", ON)
        options = WHOLE | {"loss_type": loss} | options
        stepped = pairs.make(family, "sft", speed=speed, **options)
        sizes = ONE_PICTURE if family.endswith("vl") else None
        rows = rows or grpo.make_rows(4, sizes=sizes)
        stepped.say(said or grpo.write_completions(8, end=stepped.trainer.eos_token_ids[0]))
        return stepped.update(rows, seed=seed).gradients

    return find


@pytest.fixture
def assert_same(grpo):
    def check(one, other):
        assert grpo.measure_difference(one, other) < 1e-5

    return check


@each_loss_and_pictures
def test_size_of_micro_batches(find_gradient, assert_same, loss, family):
    """Of one group, or of half a group: the micro-batches of a step add up to one gradient."""
    whole = find_gradient(loss, family=family)
    for size in (4, 2):
        split = {"per_device_train_batch_size": size, "gradient_accumulation_steps": 8 // size}
        assert_same(whole, find_gradient(loss, family=family, **split))


def test_bnpo_depends_on_micro_batches(find_gradient, grpo):
    """It is a mean over the tokens of a micro-batch, so the measure above can tell."""
    split = {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 4}
    one, other = find_gradient("bnpo"), find_gradient("bnpo", **split)
    assert grpo.measure_difference(one, other) > 1e-2


@each_loss
def test_padding(find_gradient, assert_same, loss):
    assert_same(find_gradient(loss), find_gradient(loss, pad_to_multiple_of=64))


@each_loss_and_pictures
def test_longer_neighbours(find_gradient, assert_same, grpo, loss, family):
    """The second prompt has no gradient here; its length pads the first."""

    def only_first(completion_ids, **_):
        return [*grpo.score(completion_ids)[:4], 1.0, 1.0, 1.0, 1.0]

    def find(length):
        sizes = [[(16, 16)], [(16, 16 if length == 1 else 48)]]
        rows = grpo.make_rows(
            4, lengths=(2, length), sizes=sizes if family.endswith("vl") else None
        )
        return find_gradient(
            loss,
            family=family,
            rows=rows,
            beta=0.0,
            reward=only_first,
            speed=SpeedSettings(shared_prefix="on", skip_dead_groups=False),
        )

    assert_same(find(1), find(30))


@each_loss
def test_seed_of_the_shuffle(find_gradient, assert_same, monkeypatch, loss):
    orders = []
    own = rounds.shuffle_groups
    monkeypatch.setattr(
        rounds, "shuffle_groups", lambda numbers: orders.append(own(numbers)) or orders[-1]
    )
    halves = {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 2}
    found = [find_gradient(loss, seed=seed, **halves) for seed in (0, 3)]
    assert len({tuple(order.tolist()) for order in orders}) == 2
    for gradient in found[1:]:
        assert_same(found[0], gradient)


@each_loss_and_pictures
def test_any_order_of_rows(find_gradient, assert_same, monkeypatch, loss, family):
    """Groups need not stay together: half of each is in either micro-batch."""
    whole = find_gradient(loss, family=family)
    order = torch.tensor([5, 0, 7, 2, 3, 4, 1, 6])
    monkeypatch.setattr(rounds, "shuffle_groups", lambda _: order)
    halves = {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 2}
    assert_same(whole, find_gradient(loss, family=family, **halves))


@each_loss
def test_order_of_prompts(find_gradient, assert_same, grpo, loss):
    """The other prompt first, with the same completions and rewards."""
    rows, said = grpo.make_rows(4), grpo.write_completions(8, end=2)
    rewards = {tuple(ids): reward for ids, reward in zip(said, grpo.score(said), strict=True)}

    def find(order):
        return find_gradient(
            loss,
            rows=[rows[place] for place in order],
            said=[said[place] for place in order],
            reward=lambda completion_ids, **_: [rewards[tuple(ids)] for ids in completion_ids],
        )

    assert_same(find(range(8)), find([4, 5, 6, 7, 0, 1, 2, 3]))


def count_hooks(model):
    kinds = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    return sum(len(getattr(part, kind)) for part in model.modules() for kind in kinds)


def digest(model):
    """Of every weight that does not train."""
    found = hashlib.blake2b()
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad and ".ref." not in name:
            found.update(name.encode() + parameter.detach().numpy().tobytes())
    return found.hexdigest()


@pytest.mark.parametrize("checkpointing", [pytest.param(False, marks=pytest.mark.slow), True])
@pytest.mark.parametrize(
    ("family", "trained"),
    [
        ("qwen2_5_vl", "last"),
        pytest.param("qwen2", "fresh", marks=pytest.mark.slow),
        pytest.param("qwen2_5_vl", "full", marks=pytest.mark.slow),
    ],
)
def test_twenty_rounds_leave_hooks_and_frozen_weights_alone(
    grpo, pairs, family, trained, checkpointing
):
    sizes = [[(8, 8)]] if family.endswith("vl") else None
    rows = grpo.make_rows(2, lengths=(2,), sizes=sizes)
    stepped = pairs.make(
        family,
        trained,
        speed=ON,
        beta=0.1,
        gradient_checkpointing=checkpointing,
        num_generations=2,
        per_device_train_batch_size=2,
        max_completion_length=2,
    )
    model = stepped.trainer.model
    before, hooks = digest(model), count_hooks(model)
    weights = stepped.list_weights()
    for seed in range(20):
        stepped.update(rows, seed=seed)
    assert count_hooks(model) == hooks
    assert digest(model) == before
    assert grpo.measure_difference(weights, stepped.list_weights()) > 1e-3
