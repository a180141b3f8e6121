"""Recorded passes over one token give the tokens of launched ones, or step aside with a warning."""

import copy
from functools import partial
from weakref import WeakSet

import pytest
import torch
from rerun_passes import RerunPasses
from transformers import StaticCache

from groupwise.models.policy import load_policy
from groupwise.training.fast import decoding
from groupwise.training.fast.decoding import can_record, recorded_decoding

NUM_NEW = 20


@pytest.fixture(autouse=True)
def refused(monkeypatch):
    """Models that were refused in a test are not in the next."""
    monkeypatch.setattr(decoding, "_refused", WeakSet())


@pytest.fixture(scope="module")
def policy(text_folder):
    return load_policy(text_folder)


@pytest.fixture
def model(policy):
    return policy.model


@pytest.fixture
def generate(policy, text_examples):
    """Sample with the same seed; inside, a recorder may be at work."""
    texts = [policy.render_prompt(example) for example in text_examples[:3]]
    inputs = policy.processor(text=texts, padding=True, return_tensors="pt")

    def run(model=policy.model, **options):
        given = {name: value.to(model.device) for name, value in inputs.items()}
        torch.manual_seed(0)
        options = {"do_sample": True, "min_new_tokens": NUM_NEW, "disable_compile": True} | options
        with torch.inference_mode():
            return model.generate(**given, max_new_tokens=NUM_NEW, **options)

    run.width = inputs["input_ids"].shape[1]
    return run


def open_cache(model, generate):
    return StaticCache(config=model.config, max_cache_len=generate.width + NUM_NEW)


def generate_recorded(model, generate, record):
    with recorded_decoding(model, record=record):
        return generate(past_key_values=open_cache(model, generate))


def test_tokens_are_those_of_launched_passes(model, generate):
    recorder = RerunPasses(model, [])
    assert generate_recorded(model, generate, recorder).equal(generate())
    assert recorder.num_replays == NUM_NEW - 2  # the prompt's pass and one token are launched
    assert "forward" not in vars(model)


def test_what_hooks_collect_is_that_of_launched_passes(model, generate):
    collected: list[list[torch.Tensor]] = [[], []]
    for states, record in zip(collected, (RerunPasses(model, collected[0]), None), strict=True):
        block = model.base_model.layers[1]
        hook = block.register_forward_pre_hook(lambda _, given, to=states: to.append(given[0]))
        if record is None:
            generate()
        else:
            with recorded_decoding(model, collected=states, record=record):
                generate(past_key_values=open_cache(model, generate))
        hook.remove()
    recorded, launched = collected
    assert len(recorded) == len(launched) == NUM_NEW
    for one, other in zip(recorded, launched, strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=0)


def test_a_pass_that_cannot_be_recorded_is_launched(model, generate, caplog):
    def refuse(_):
        raise RuntimeError("operation not permitted when stream is capturing\nmore")

    assert generate_recorded(model, generate, refuse).equal(generate())
    [said] = caplog.messages
    assert said.endswith("launched one by one: operation not permitted when stream is capturing")
    again = RerunPasses(model, [])
    assert generate_recorded(model, generate, again).equal(generate())
    assert again.num_replays == 0


@pytest.mark.parametrize("number", [1, 16])
def test_a_replay_that_differs_is_not_believed(model, generate, caplog, number):
    class Wrong(RerunPasses):
        def __call__(self, run):
            output, replay = super().__call__(run)

            def spoil():
                replay()
                if self.num_replays == number:
                    output.logits.mul_(1.001)

            return output, spoil

    recorder = Wrong(model, [])
    assert generate_recorded(model, generate, recorder).equal(generate())
    assert recorder.num_replays == number
    assert caplog.messages == [
        "decoding is not recorded, tokens are launched one by one: "
        "a replayed pass differs from a launched one"
    ]


def test_two_prompts_one_after_the_other_are_not_mixed(model, generate, caplog):
    """The second has another cache: what was recorded would write into the first one."""
    recorder = RerunPasses(model, [])
    with recorded_decoding(model, record=recorder):
        for _ in range(2):
            found = generate(past_key_values=open_cache(model, generate))
            assert found.equal(generate())
    assert caplog.messages == [
        "decoding is not recorded, tokens are launched one by one: "
        "its inputs have other shapes than before"
    ]


def test_other_caches_are_left_alone(model, generate):
    recorder = RerunPasses(model, [])
    with recorded_decoding(model, record=recorder):
        assert generate().equal(generate())
    assert recorder.num_replays == 0


def test_forward_is_given_back_after_a_fault(model):
    def fail():
        with recorded_decoding(model):
            raise KeyError

    model.forward = own = partial(type(model).forward, model)
    with pytest.raises(KeyError):
        fail()
    assert vars(model).pop("forward") is own


@pytest.mark.skipif(torch.cuda.is_available(), reason="the model is on the GPU")
def test_nothing_is_recorded_on_a_cpu(model):
    assert not can_record(model, 100)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="records a CUDA graph")
class TestOnAGpu:
    @pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
    def test_tokens_are_those_of_launched_passes(self, model, generate, dtype, caplog):
        model = copy.deepcopy(model).to(dtype)
        assert can_record(model, NUM_NEW)
        with recorded_decoding(model):
            recorded = generate(model, past_key_values=open_cache(model, generate))
        assert recorded.equal(generate(model, past_key_values=open_cache(model, generate)))
        assert not caplog.messages

    def test_memory_is_used_again(self, model, generate):
        held = []
        for _ in range(6):
            with recorded_decoding(model):
                generate(past_key_values=open_cache(model, generate))
            held.append(torch.cuda.memory_reserved())
        assert held[-1] == held[1]

    def test_a_pass_that_asks_the_host_is_launched(self, model, generate, caplog):
        def ask(_, given):
            assert given[0].isfinite().all()

        hook = model.base_model.layers[0].register_forward_pre_hook(ask)
        with recorded_decoding(model):
            recorded = generate(past_key_values=open_cache(model, generate))
        hook.remove()
        launched = generate(past_key_values=open_cache(model, generate))
        assert recorded.equal(launched)
        assert len(caplog.messages) == 1
        # What a recording that failed left behind is not in the way of another.
        decoding._refused.clear()
        with recorded_decoding(model):
            again = generate(past_key_values=open_cache(model, generate))
        assert again.equal(launched)
        assert len(caplog.messages) == 1
