"""What weights in 4 bits do not go with is refused before anything is trained."""

from pathlib import Path
from typing import Any

import pytest
from small_task import LORA, SmallConfig, SmallTask

from groupwise.flow import FinishedRun, export_for_trainer
from groupwise.models import quantization

MODEL: dict[str, Any] = LORA["model"] | {"quantization": "nf4"}
GRPO: dict[str, Any] = LORA["grpo"] | {"entropy_bonus": 0.0}
FULL = {"trainable": {"method": "full"}}


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"grpo": GRPO | FULL}, "only a LoRA trains on 4 bits; set grpo.trainable.method to lora"),
        ({"sft": FULL}, "only a LoRA trains on 4 bits; set sft.trainable.method to lora"),
        (
            {"grpo": GRPO | {"trainable": {"method": "prompt"}}},
            "only a LoRA trains on 4 bits; set grpo.trainable.method to lora",
        ),
        (
            {"compute": {"sharding": "fsdp"}},
            "weights in 4 bits are not spread; set compute.sharding to none",
        ),
        ({"grpo": GRPO | {"vllm": {}}}, "leave grpo.vllm out"),
    ],
)
def test_a_config_that_does_not_go_with_bits_is_refused(
    changes: dict[str, Any], sentence: str
) -> None:
    usual = LORA | {"grpo": GRPO}
    with pytest.raises(ValueError, match=f"model.quantization nf4: .*{sentence}"):
        SmallConfig(**usual | {"model": MODEL} | changes)
    SmallConfig(**usual | changes)
    SmallConfig(**usual | {"model": MODEL})


@pytest.mark.parametrize("ending", [(), ("--dry-run",)])
def test_without_bitsandbytes_a_run_ends_before_it_begins(
    ending: tuple[str, ...], command_line: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quantization, "find_spec", lambda _: None)
    lora = [f"{stage}.trainable.method=lora" for stage in ("sft", "grpo")]
    told = [word for one in ("model.quantization=nf4", *lora) for word in ("--set", one)]
    ended = command_line("run", "on_task", "--out", "run", *told, *ending)
    assert ended.returncode == 2
    assert "model.quantization: nf4 needs bitsandbytes, which is not installed" in ended.stderr
    assert "pip install 'groupwise[quantization]'" in ended.stderr
    assert not Path("run", "sft").exists()


@pytest.mark.parametrize("trainer", ["verl", "swift"])
def test_other_trainers_are_not_told_of_bits(trainer: Any, tmp_path: Path) -> None:
    config = SmallConfig(**LORA | {"model": MODEL})
    task = SmallTask()
    run = FinishedRun(tmp_path, task.make_recipe("small"), task, config)
    with pytest.raises(Exception, match=f"{trainer} is not told of weights in 4 bits"):
        export_for_trainer(run, tmp_path / "out", trainer)
