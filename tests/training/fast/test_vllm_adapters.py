"""A server samples with the adapter that was put on it under its own name, and says so."""

import pytest
import torch
from peft import get_peft_model

from groupwise.core import TrainingError
from groupwise.training import GrpoSettings
from groupwise.training.fast.vllm_adapters import save_adapter, send_adapters
from groupwise.training.settings import SpeedSettings


@pytest.fixture
def server(fixtures, policies, grpo):
    base = policies.find_base("qwen2")
    completions = grpo.write_completions(6, end=base.generation_config.eos_token_id)
    served = fixtures("adapter_server").AdapterServer(base, completions)
    yield served
    served.close()


@pytest.fixture
def make(pairs, server, tmp_path):
    def run(**options):
        options |= {"vllm_mode": "server", "vllm_server_base_url": server.url}
        with send_adapters(tmp_path):
            return pairs.make("qwen2", speed=SpeedSettings(), use_vllm=True, **options)

    return run


def test_each_update_reaches_the_server_under_a_name_of_its_own(make, server, grpo, tmp_path):
    """Its log-probabilities are the policy's; the adapter before is gone, on disk, too."""
    stepped = make(trained="sft")
    for seed in range(3):
        stepped.update(grpo.make_rows(3), seed=seed)
    found = stepped.list_metrics()["sampling/sampling_logp_difference/max"]
    assert max(found) < 1e-5
    names = [name for verb, name in server.changes if verb == "load"]
    assert len(set(names)) == len(names) == 3
    assert [change for change in server.changes if change[0] == "unload"] == [
        ("unload", name) for name in names[:2]
    ]
    assert list(server.loaded) == names[2:]
    [place] = tmp_path.iterdir()
    assert [one.name for one in place.iterdir()] == names[2:]


def test_what_has_not_changed_is_not_sent_again(make, server, grpo):
    stepped = make(trained="sft")
    for seed in range(2):
        stepped.update(grpo.make_rows(3), seed=seed, apply=False)
    assert [verb for verb, _ in server.changes] == ["load"]


@pytest.mark.slow
def test_an_adapter_that_is_there_already_is_not_loaded_again(make, server, grpo):
    make(trained="sft").update(grpo.make_rows(3))
    make(trained="sft").update(grpo.make_rows(3))
    assert [verb for verb, _ in server.changes] == ["load"]


def test_an_answer_by_another_model_is_an_error(make, server, grpo):
    stepped = make(trained="sft")
    server.says = "base"
    with pytest.raises(TrainingError, match="not sample with the newest adapter; got an answer by"):
        stepped.update(grpo.make_rows(3))


def test_a_server_that_refuses_is_one_sentence(make, server, grpo):
    stepped = make(trained="sft")
    server.refuses = "LoRA rank 4 is greater than max_lora_rank 2"
    with pytest.raises(TrainingError, match=r"did not load the adapter .* 400: LoRA rank 4 is"):
        stepped.update(grpo.make_rows(3))


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        ({"use_dora": True}, "variant of LoRA"),
        ({"modules_to_save": ["lm_head"]}, "no linear layer"),
        ({"lora_bias": True}, "lora_bias is on"),
    ],
)
def test_what_vllm_cannot_load_is_refused_before_anything_is_sampled(
    make, policies, server, options, fault
):
    model = get_peft_model(policies.build("qwen2", "full"), policies.make_lora(**options))
    with pytest.raises(TrainingError, match=f"cannot load the adapter of this policy: .*{fault}"):
        make(model=model)
    assert not server.changes


def test_full_training_has_no_adapter(make):
    with pytest.raises(TrainingError, match="it has no LoRA adapter"):
        make(trained="full")
    with pytest.raises(ValueError, match=r"sends adapter needs trainable\.method lora"):
        GrpoSettings(trainable={"method": "full"}, vllm={"mode": "server", "sends": "adapter"})


def test_a_name_is_that_of_the_weights(policies, tmp_path):
    """Equal weights have one name, others another; nothing else is in the folder."""
    model = policies.build("qwen2", "sft")
    first = save_adapter(model, tmp_path)
    assert {one.name for one in first.iterdir()} == {
        "adapter_config.json",
        "adapter_model.safetensors",
    }
    assert save_adapter(model, tmp_path) == first
    with torch.no_grad():
        next(p for n, p in model.named_parameters() if "lora_B" in n).add_(1e-3)
    assert save_adapter(model, tmp_path) != first
