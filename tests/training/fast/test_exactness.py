"""Log-probabilities, gradients and adapters are those of the parent class, in any order."""

import hashlib
import warnings
from importlib.util import find_spec

import pytest
import torch

from groupwise.models.policy import load_policy
from groupwise.models.quantization import keep_adapter_dtype
from groupwise.models.trainable import LoraSettings, TrainableSettings, prepare_trainable
from groupwise.training.fast import round as rounds
from groupwise.training.fast import scoring
from groupwise.training.fast.shared import Packing, Streams
from groupwise.training.settings import SpeedSettings

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
        rows = rows or grpo.make_rows(3, family=family)
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
@pytest.mark.parametrize("place", ["before the words", "among them and in a later turn"])
def test_two_pictures_of_different_sizes(compare, grpo, family, place):
    rows = grpo.make_rows(3, lengths=(9, 2), sizes=TWO_PICTURES)
    rows = rows if place == "before the words" else grpo.mix(rows)
    compare(family, rows=rows, beta=0.1, num_iterations=2)


def test_different_numbers_of_pictures(compare, grpo):
    rows = grpo.make_rows(3, sizes=[[(16, 24)], [(24, 24), (8, 16), (16, 16)]])
    compare("qwen2_5_vl", rows=rows, beta=0.1)


def test_one_prompt_twice_in_a_batch(compare, grpo):
    """Two groups of one prompt that follow each other are computed as one and scored as two."""
    compare(rows=grpo.make_rows(6, lengths=(5,)), beta=0.1)


@pytest.mark.parametrize("off", ["prefill_once", "skip_dead_groups"])
def test_a_lever_off(compare, off):
    speed = SpeedSettings(shared_prefix="on", **{off: False})
    compare("qwen2_5_vl", speed=speed, beta=0.1, num_iterations=2)


ON = SpeedSettings(shared_prefix="on")
WHOLE = {"num_generations": 4, "per_device_train_batch_size": 8, "beta": 0.1}
SUMMED = ("grpo", "dr_grpo", "dapo")
each_loss = pytest.mark.parametrize(
    "loss", [one if one == "dapo" else pytest.param(one, marks=pytest.mark.slow) for one in SUMMED]
)
each_loss_and_pictures = pytest.mark.parametrize(
    ("family", "loss"),
    [
        ("qwen2", "dapo"),
        *[pytest.param("qwen2", loss, marks=pytest.mark.slow) for loss in SUMMED[:2]],
        *[pytest.param("qwen2_5_vl", loss, marks=pytest.mark.slow) for loss in SUMMED],
    ],
)


@pytest.fixture
def find_gradient(grpo, pairs):
    """Return the gradient of one optimizer step on two prompts of four completions."""

    def find(loss, *, family="qwen2", rows=None, said=None, seed=0, **options):
        speed = options.pop("speed", ON)
        options = WHOLE | {"loss_type": loss} | options
        stepped = pairs.make(family, "sft", speed=speed, **options)
        rows = rows or grpo.make_rows(4, family=family)
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


AUTO = SpeedSettings()
# How weights are kept, and what passes are cast to.
PRECISIONS = {
    "bfloat16": (torch.bfloat16, {}),
    "float16": (torch.float16, {}),
    "autocast": (torch.float32, {"bf16": True}),
    "both": (torch.bfloat16, {"bf16": True}),
}


@pytest.fixture
def score(grpo, pairs, policies):
    """Score a round of two prompts in a precision; return the trainer and why it fell back."""

    def run(family, precision, *, trained="sft", speed=AUTO, seed=0):
        dtype, options = PRECISIONS[precision]
        model = policies.build(family, trained).to(dtype)
        stepped = pairs.make(
            family, trained, model=model, speed=speed, beta=0.1, num_iterations=2, **options
        )
        torch.manual_seed(seed)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            stepped.trainer._generate_and_score_completions(grpo.make_rows(3, family=family))
        reasons = [str(w.message) for w in caught if "once per completion" in str(w.message)]
        return stepped, reasons

    return run


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("family", ["qwen2", "qwen3", "llama", "qwen2_5_vl", "qwen3_vl"])
def test_a_right_pass_is_shared(score, family, precision):
    stepped, reasons = score(family, precision)
    assert not reasons
    assert stepped.num_shared


def change_pass(monkeypatch, **changes):
    own = scoring._describe_pass

    def describe(*given):
        described = own(*given)
        changed = {name: change(getattr(described, name)) for name, change in changes.items()}
        return scoring.replace(described, **changed)

    monkeypatch.setattr(scoring, "_describe_pass", describe)


def see_padding(monkeypatch):
    change_pass(monkeypatch, mask=torch.ones_like)


def shift_positions(monkeypatch):
    change_pass(monkeypatch, positions=lambda positions: positions + 1)


def turn_backwards(monkeypatch):
    """The rotary embedding of completions turns the other way."""
    change_pass(monkeypatch, positions=lambda positions: -positions)


def swap_one_row(monkeypatch):
    """The last row continues the first prompt."""
    change_pass(
        monkeypatch, prompt_of_row=lambda rows: torch.cat([rows[:-1], torch.zeros_like(rows[:1])])
    )


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("fault", [see_padding, shift_positions, turn_backwards, swap_one_row])
def test_a_wrong_pass_is_noticed(score, monkeypatch, fault, precision):
    fault(monkeypatch)
    _, (reason,) = score("qwen2", precision)
    assert "log-probabilities differ by" in reason


def differentiate(prefix, prompt_of_row, weights):
    """Return the gradients of the prompts' keys and values."""
    given = [part.clone().requires_grad_() for part in prefix]
    num_rows = len(prompt_of_row)
    packings = Packing((3, 40)), Packing((num_rows, 0))
    streams = Streams(packings, prompt_of_row, (None, None), "sdpa")
    own = torch.zeros(1, 2, 0, 32)

    def attend(_, keys, values, __):
        return ((keys + values) * weights).sum((1, 2, 3))[:, None], None

    streams.attend_tails(attend, own, own, own, known=given).sum().backward()
    return [part.grad for part in given]


def test_gradients_of_prompts_are_the_same_whatever_the_number_of_threads():
    torch.manual_seed(0)
    prefix = torch.randn(2, 3, 2, 40, 32)
    # Two threads divide the 33 rows within the group in the middle.
    prompt_of_row = torch.tensor([0] * 5 + [1] * 23 + [2] * 5)
    weights = torch.randn(33, 2, 40, 32)
    found = []
    for num_threads in (1, 2):
        torch.set_num_threads(num_threads)
        found.append(differentiate(prefix, prompt_of_row, weights))
    torch.set_num_threads(1)
    one, two = found
    assert all(first.equal(second) for first, second in zip(one, two, strict=True))


pytestmark = pytest.mark.skipif(
    find_spec("bitsandbytes") is None,
    reason="bitsandbytes is not installed: pip install 'groupwise[quantization]'",
)


@pytest.fixture
def make(pairs, policies):
    """Make a trainer of a family's policy in 4 bits, whose adapter is not 0."""

    def make(family, last_blocks, speed=None, **options):
        folder = policies.find_base(family).name_or_path
        policies.find_processor(family).save_pretrained(folder)
        model = load_policy(folder, quantization="nf4").model
        settings = TrainableSettings(lora=LoraSettings(rank=4, alpha=16, last_blocks=last_blocks))
        torch.manual_seed(1)
        model = prepare_trainable(model, settings)
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                parameter.data += 0.1 * torch.randn_like(parameter)
        with keep_adapter_dtype(model):
            return pairs.make(family, model=model, speed=speed, **options)

    return make


@pytest.mark.parametrize(
    ("family", "last_blocks", "options"),
    [
        ("qwen2", None, {"beta": 0.1}),
        ("qwen2", 2, {"gradient_checkpointing": True}),
        ("qwen2_5_vl", 2, {}),
        ("qwen3_5", None, {}),
    ],
)
def test_log_probs_and_gradients(family, last_blocks, options, make, grpo, keep_order):
    """Of the same bits, with and without shared prompts, in two steps."""
    speeds = (None, SpeedSettings(shared_prefix="on"))
    both = [make(family, last_blocks, speed, **options) for speed in speeds]
    rows = grpo.make_rows(3, family=family)
    for stepped in both:
        stepped.say(grpo.write_completions(len(rows), end=both[0].trainer.eos_token_ids[0]))
    for seed in range(2):
        plain, shared = (stepped.update(rows, seed=seed) for stepped in both)
        assert grpo.measure_log_probs(plain, shared) < 1e-5
        assert grpo.measure_difference(plain.gradients, shared.gradients) < 1e-4
    assert both[1].num_shared >= 2
    assert both[0].num_shared == 0
