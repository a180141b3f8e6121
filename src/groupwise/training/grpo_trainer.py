"""Our GRPOTrainer: the fast one, with the on-policy check, token rates and vLLM."""

import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from accelerate.utils import gather_object

from groupwise.core import Example, TrainingError, write_json
from groupwise.models import (
    Policy,
    find_quantization,
    keep_adapter_dtype,
    list_trainable,
    project_patches_fast,
    restore_trainable,
)
from groupwise.training.grpo_rows import make_prompt_rows
from groupwise.training.on_policy import check_on_policy, join_results
from groupwise.training.settings import GrpoSettings, VllmSettings
from groupwise.training.sharding import is_spread, refuse_quantized
from groupwise.training.temperature import find_temperature, set_temperature
from groupwise.training.workspace import load_weights

if TYPE_CHECKING:
    from groupwise.training.fast.refill import Candidates

# The newest vLLM that TRL supports wants an older Transformers; pip finds one that fits both.
_INSTALL = "pip install 'trl[vllm]==1.16.*' 'transformers>=5.23,<5.24'"


def build_vllm_arguments(settings: VllmSettings | None) -> dict[str, Any]:
    """Return keyword arguments for ``GRPOConfig``.

    Raises:
        TrainingError: if vLLM is not installed, or weights cannot be sent to a server from here.
    """
    if settings is None:
        return {"use_vllm": False}
    _check_machine(settings)
    return {
        "use_vllm": True,
        "vllm_mode": settings.mode,
        "vllm_server_base_url": settings.base_url,
        "vllm_group_port": settings.weights_port,
        "vllm_server_timeout": settings.server_timeout_s,
        "vllm_gpu_memory_utilization": settings.gpu_memory_share,
        "vllm_tensor_parallel_size": settings.tensor_parallel_size,
        "vllm_enable_sleep_mode": settings.sleep,
        "vllm_max_model_length": settings.max_model_length,
        "vllm_importance_sampling_correction": settings.correction is not None,
        "vllm_importance_sampling_mode": settings.correction or "sequence_mask",
        "vllm_importance_sampling_clip_min": settings.ratio_min,
        "vllm_importance_sampling_clip_max": settings.ratio_max,
    }


@contextmanager
def name_missing_server(settings: VllmSettings | None) -> Iterator[None]:
    """Within this context a vLLM server that does not answer is a TrainingError."""
    try:
        yield
    except OSError as error:  # what requests raises, with which TRL asks
        if settings is None or settings.mode != "server":
            raise
        raise TrainingError(
            "the vLLM server to sample with cannot be used",
            got=str(error),
            fix="start it as grpo.vllm describes, or correct grpo.vllm.base_url",
        ) from error


def _check_machine(settings: VllmSettings) -> None:
    from trl.import_utils import is_vllm_available

    if not is_vllm_available():
        raise TrainingError("grpo.vllm needs vLLM, which is not installed", fix=_INSTALL)
    if settings.mode == "server" and not torch.cuda.is_available():
        raise TrainingError(
            "a vLLM server takes new weights over NCCL, from a CUDA device only",
            got="a machine without one",
            fix="set grpo.vllm.mode to colocate, or leave grpo.vllm out",
        )


def make_grpo_trainer(
    policy: Policy,
    examples: Sequence[Example],
    *,
    settings: GrpoSettings,
    seed: int,
    **named: Any,
) -> Any:
    """Return a FastGRPOTrainer for ``policy``; ``named`` are GRPOTrainer's own arguments.

    ``seed`` is that of the order in which others take the places of dead groups.

    Its first batch goes through the on-policy check, which writes ``on_policy.json``.
    Only what trains in ``policy`` now will train: switching to the reference adapter and back
    would let other weights train, too.
    """
    from transformers import PrinterCallback

    from groupwise.training.fast.vllm_check import check_sampler

    trainable = list_trainable(policy.model)
    base, more = _choose_trainer(examples, settings, seed=seed)

    class _Trainer(base):
        """Checks its first batch and writes no model card."""

        def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
            step = self.state.global_step
            set_temperature(self, find_temperature(settings, step=step))
            started = time.perf_counter()
            batch = super()._generate_and_score_completions(inputs)
            duration_s = time.perf_counter() - started
            restore_trainable(policy.model, trainable)
            check_sampler(self, batch, settings.vllm)
            num_tokens = int(self.accelerator.reduce(batch["completion_mask"].sum(), "sum"))
            self._metrics["train"]["tokens_per_s"].append(num_tokens / duration_s)
            if settings.temperature_warmup is not None:
                self._metrics["train"]["temperature"].append(self.temperature)
            if step == 0 and self._step == 0:
                _check_start(self, policy, [examples[row["place"]] for row in inputs], batch)
            return batch

        def _load_from_checkpoint(self, checkpoint: str, model: Any = None) -> None:
            if not is_spread(policy.model):
                load_weights(policy.model, Path(checkpoint))

        def create_model_card(self, *_: Any, **__: Any) -> None:
            pass

    with (
        name_missing_server(settings.vllm),
        _prepare_vllm(settings.vllm, policy),
        keep_adapter_dtype(policy.model),
    ):
        trainer = _Trainer(speed=settings.speed, **more, **named)
    refuse_quantized(trainer)
    if trainer.ref_model is not None:
        project_patches_fast(trainer.ref_model)
    trainer.remove_callback(PrinterCallback)
    _complete_reference(policy.model)
    restore_trainable(policy.model, trainable)
    return trainer


def _check_start(
    trainer: Any, policy: Policy, examples: Sequence[Example], batch: dict[str, Any]
) -> None:
    """Let the first round go through the on-policy check, and write what it measured."""
    own = check_on_policy(trainer, policy, examples, batch)
    result = join_results(gather_object([own]))
    if trainer.accelerator.is_main_process:
        write_json(Path(str(trainer.args.output_dir)) / "on_policy.json", vars(result))


def _choose_trainer(
    examples: Sequence[Example], settings: GrpoSettings, *, seed: int
) -> tuple[Any, dict[str, Any]]:
    """Return the class that samples as the settings say, and what it takes for that."""
    if settings.refill is not None:
        from groupwise.training.fast.refill import RefillingTrainer

        return RefillingTrainer, {"candidates": _collect_candidates(examples, settings, seed=seed)}
    from groupwise.training.fast.trainer import FastGRPOTrainer

    return FastGRPOTrainer, {}


def _prepare_vllm(settings: VllmSettings | None, policy: Policy) -> AbstractContextManager[None]:
    """Return within what a trainer has to be made for its vLLM to be as the settings say."""
    from groupwise.training.fast.vllm_pictures import forward_limits

    if settings is not None and find_quantization(policy.model) is not None:
        raise TrainingError(
            "weights in 4 bits are none that vLLM could be sent, merged with their adapter",
            fix="leave grpo.vllm out, or set model.quantization to null",
        )
    return forward_limits(policy.processor)


def _collect_candidates(
    examples: Sequence[Example], settings: GrpoSettings, *, seed: int
) -> "Candidates":
    """Return the prompts that may take the places of others."""
    from groupwise.training.fast.refill import Candidates

    def read(places: Sequence[int], step: int) -> list[Any]:
        # No epoch has this number: what is sampled is sampled nowhere else.
        layout = [(settings.epochs + step, place) for place in places]
        return list(make_prompt_rows(examples, layout, seed=seed))

    assert settings.refill is not None
    return Candidates(read, num_prompts=len(examples), settings=settings.refill, seed=seed)


def _complete_reference(model: Any) -> None:
    """Copy vectors of virtual tokens to the reference, where there is one.

    TRL copies the parameters inside of ``default``; these are called so themselves.
    """
    for name, parameter in model.named_parameters():
        if name.endswith(".default") and "ref" in model.peft_config:
            copy = model.get_parameter(name.removesuffix("default") + "ref")
            copy.data.copy_(parameter.data)
