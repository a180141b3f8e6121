import pytest
import torch

from groupwise.core import Score, TrainingError
from groupwise.models import TrainableSettings, load_policy
from groupwise.rewards import RewardSet
from groupwise.training import GrpoSettings, SftRow, SftSettings, Workspace, train_grpo, train_sft
from groupwise.training.settings import name_memory_settings

FULL = TrainableSettings(method="full")


def run_out(*_, **__):
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB\nmore of it")


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory"),
        MemoryError(),
    ],
)
def test_memory_of_any_device(error):
    with (
        pytest.raises(TrainingError, match="a training step ran out of memory") as caught,
        name_memory_settings(SftSettings(batch_size=7)),
    ):
        raise error
    assert caught.value.__cause__ is error
    assert "lower batch_size (7)" in str(caught.value)


def test_other_errors_stay_what_they_are():
    with (
        pytest.raises(RuntimeError, match="shapes do not fit"),
        name_memory_settings(SftSettings()),
    ):
        raise RuntimeError("shapes do not fit")


def test_grpo_names_what_to_change(taught_text_folder, text_examples, tmp_path):
    settings = GrpoSettings(
        prompts_per_step=4, group_size=2, max_new_tokens=4, warmup_share=0, trainable=FULL
    )
    policy = load_policy(taught_text_folder)
    policy.model.generate = run_out
    with pytest.raises(TrainingError) as caught:
        train_grpo(
            policy,
            text_examples,
            RewardSet({"fixed": (lambda *_: Score(1.0), 1.0)}),
            settings,
            workspace=Workspace(tmp_path, 0),
        )
    assert str(caught.value) == (
        "a training step ran out of memory; got CUDA out of memory. Tried to allocate 2 GiB; "
        "lower prompts_per_step (4), group_size (2), max_new_tokens (4); raise "
        "gradient_accumulation (1) to make up for it; set gradient_checkpointing (false) to true; "
        "set trainable.method (full) to lora; load the model with model.dtype: bfloat16; then run "
        "again with --resume: finished steps are kept."
    )


def test_sft_names_what_to_change(taught_text_folder, text_examples, tmp_path, monkeypatch):
    policy = load_policy(taught_text_folder)
    monkeypatch.setattr(type(policy.model.model), "forward", run_out)
    rows = [SftRow(example, "yes") for example in text_examples]
    settings = SftSettings(batch_size=2, warmup_share=0, gradient_checkpointing=True)
    with pytest.raises(TrainingError, match=r"lower batch_size \(2\); raise") as caught:
        train_sft(policy, lambda _: rows, settings, workspace=Workspace(tmp_path, 0))
    assert "gradient_checkpointing" not in str(caught.value)
    assert "lower trainable.lora.last_blocks (all)" in str(caught.value)
