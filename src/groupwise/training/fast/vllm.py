"""Sampling with vLLM through TRL: what it is told, shown and sent, and what is checked.

*Weights.* TRL merges an adapter into the base weights and takes it out again at every sync; in
bfloat16 both round, and policy and reference change. Here adapters are merged into copies, one
weight at a time.

*Pictures.* vLLM processes pictures itself, by the limits of the model's own files. TRL gives it the
pictures as they were and, in its process, prompts whose placeholders are written out already; vLLM
writes the first of each out once more (https://github.com/huggingface/trl/issues/6294). Neither
raises. Here it is shown what its processor leaves as it is, and what it made of it is compared.

*The check.* vLLM's log-probabilities of what it sampled are about the policy's own, but for its
kernels and precision. Weights that did not arrive, or in part, a stale prefix cache, another model,
and a server that leaves the temperature out are farther off.
"""

import math
import re
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import groupby
from typing import Any

import torch
from accelerate.utils import gather_object
from peft.tuners.lora.layer import Embedding, Linear
from peft.tuners.tuners_utils import BaseTunerLayer
from peft.utils.other import AuxiliaryTrainingWrapper, ModulesToSaveWrapper

from groupwise.core import TrainingError
from groupwise.models.policy import Policy
from groupwise.models.quantization import find_quantization
from groupwise.training.fast.guard import pick_rows
from groupwise.training.on_policy import PICTURE_NAMES
from groupwise.training.settings import VllmSettings

# The newest vLLM that TRL supports wants an older Transformers; pip finds one that fits both.
_INSTALL = "pip install 'trl[vllm]==1.16.*' 'transformers>=5.23,<5.24'"
_MAX_ROWS = 4
_MAX_LOGPROB_GAP = 0.1
_BELOW = ".base_layer."
_ORIGINAL = ".original_module."
_WRAPPED = re.compile(r"\.(?:base_layer|original_module|modules_to_save\.[^.]+)\.")


def build_vllm_arguments(settings: VllmSettings | None) -> dict[str, Any]:
    if settings is None:
        return {"use_vllm": False}
    from trl.import_utils import is_vllm_available

    if not is_vllm_available():
        raise TrainingError("grpo.vllm needs vLLM, which is not installed", fix=_INSTALL)
    if settings.mode == "server" and not torch.cuda.is_available():
        raise TrainingError(
            "a vLLM server takes new weights over NCCL, from a CUDA device only",
            got="a machine without one",
            fix="set grpo.vllm.mode to colocate, or leave grpo.vllm out",
        )
    return {
        "use_vllm": True,
        "vllm_mode": settings.mode,
        "vllm_server_base_url": settings.base_url,
        "vllm_gpu_memory_utilization": settings.gpu_memory_share,
        "vllm_max_model_length": settings.max_model_length,
        "vllm_importance_sampling_correction": True,
        "vllm_importance_sampling_mode": "sequence_mask",
        "vllm_importance_sampling_clip_min": None,
        "vllm_importance_sampling_clip_max": 3.0,
    }


@contextmanager
def prepare_vllm(settings: VllmSettings | None, policy: Policy) -> Iterator[None]:
    """Within this context a trainer is made whose vLLM is as the settings and the processor say."""
    import trl.generation.vllm_generation

    if settings is not None and find_quantization(policy.model) is not None:
        raise TrainingError(
            "weights in 4 bits are none that vLLM could be sent, merged with their adapter",
            fix="leave grpo.vllm out, or set model.quantization to null",
        )
    module: Any = trl.generation.vllm_generation
    own = getattr(module, "LLM", None)
    size = getattr(getattr(policy.processor, "image_processor", None), "size", None) or {}
    if own is not None and "longest_edge" in size:
        limits = {"min_pixels": size["shortest_edge"], "max_pixels": size["longest_edge"]}
        module.LLM = partial(own, mm_processor_kwargs=limits)
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
    finally:
        if own is not None:
            module.LLM = own


# ---- weights -------------------------------------------------------------------------------------


def send_merged(generation: Any, model: Any) -> None:
    """Let TRL's VLLMGeneration send what ``iter_merged`` yields of a PEFT model."""
    obstacle = "its adapter is not LoRA"
    if getattr(model, "prefix", None) == "lora_":
        found = filter(None, map(_find_part_obstacle, model.modules()))
        obstacle = next(found, None)
        names: dict[int, list[str]] = defaultdict(list)
        for name, parameter in model.named_parameters(remove_duplicate=False):
            names[id(parameter)].append(name)
        for tied in filter(lambda one: len(one) > 1, names.values()):
            adapted = (name for name in tied if _BELOW in name or _ORIGINAL in name)
            if obstacle is None and (name := next(adapted, None)) is not None:
                obstacle = f"{name} is tied to another weight, which has not the same adapter"
    if obstacle is not None:
        raise TrainingError(
            f"vLLM cannot sample from this policy: {obstacle}",
            fix="leave grpo.vllm out, or train plain LoRA on linear layers",
        )
    generation._iter_named_params = partial(iter_merged, model)


@torch.no_grad()
def iter_merged(model: Any) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield every weight under its name in the model without adapters, tied ones once.

    Where adapters are active it is W + Σ scale · B · A, summed up in float32 and rounded once; no
    two merged weights are in memory at a time.
    """
    modules = dict(model.named_modules())
    unused: list[str] = []  # where modules that are saved whole keep what they do not compute with
    for name, part in modules.items():
        if isinstance(part, ModulesToSaveWrapper):
            used = "" if part.disable_adapters else next(iter(part.active_adapters), "")
            if used in part.modules_to_save:
                unused.append(f"{name}{_ORIGINAL}")
            others = (one for one in part.modules_to_save if one != used)
            unused += [f"{name}.modules_to_save.{one}." for one in others]
    for name, parameter in model.named_parameters():
        if model.prefix in name or name.startswith(tuple(unused)):
            continue
        owner, _, kind = name.rpartition(_BELOW)
        value = _merge(modules[owner], kind, parameter.data) if owner else parameter.data
        yield _WRAPPED.sub(".", name).removeprefix("base_model.model."), value


def _merge(layer: Any, kind: str, value: torch.Tensor) -> torch.Tensor:
    is_off = layer.disable_adapters or layer.merged
    adapters = [name for name in layer.active_adapters if name in layer.scaling and not is_off]
    total = value.float()
    for adapter in adapters:
        scale = layer.scaling[adapter]
        if kind == "weight":
            if isinstance(layer, Embedding):
                left, right = layer.lora_embedding_A[adapter].T, layer.lora_embedding_B[adapter].T
            else:
                right, left = layer.lora_A[adapter].weight, layer.lora_B[adapter].weight
                if layer.fan_in_fan_out:
                    left, right = right.T, left.T
            total = torch.addmm(total, left.float(), right.float(), alpha=scale)
        elif layer.lora_bias[adapter]:
            total = total + scale * layer.lora_B[adapter].bias.float()
    return total.to(value.dtype) if adapters else value


def _find_part_obstacle(part: Any) -> str | None:
    kind = type(part).__name__
    if isinstance(part, AuxiliaryTrainingWrapper) and not isinstance(part, ModulesToSaveWrapper):
        return f"it trains a part of a layer ({kind})"
    if not isinstance(part, BaseTunerLayer):
        return None
    if not isinstance(part, Linear | Embedding):
        return f"LoRA on a {kind} layer cannot be merged"
    if part.lora_variant:
        return f"it is a variant of LoRA ({type(next(iter(part.lora_variant.values()))).__name__})"
    if any(part.lora_bias.values()) and part.get_base_layer().bias is None:
        return "lora_bias is on for a layer without a bias"
    return None


# ---- pictures ------------------------------------------------------------------------------------


def show_pictures(generation: Any, processor: Any) -> None:
    """Let TRL's VLLMGeneration show pictures as training sees them, scaled once, and compare."""
    image_processor = getattr(processor, "image_processor", None)
    if image_processor is None:
        return
    own = generation.generate

    def show(*, prompts: Sequence[Any], images: Any, **named: Any) -> tuple[Any, ...]:
        distinct = {id(one): one for row in images for one in row or ()}
        scaled = {place: scale_picture(image_processor, one) for place, one in distinct.items()}
        shown = [row and [scaled[id(one)] for one in row] for row in images]
        return own(prompts=prompts, images=shown, **named)

    def generate(prompts: Sequence[Any], images: Any, **named: Any) -> tuple[Any, ...]:
        if images is None:
            return own(prompts=prompts, images=None, **named)
        if generation.mode == "server":
            return show(prompts=prompts, images=images, **named)
        # In this process, see that vLLM wrote out the prompts of training.
        given = [collapse(prompt, processor.image_token_id) for prompt in prompts]
        seen, *rest = show(prompts=given, images=images, **named)
        for one, other in zip(prompts, seen, strict=True):
            if list(one) != list(other):
                fix = "leave grpo.vllm out for this model"
                raise _differ(len(other), len(one), fix=fix)
        return (seen, *rest)

    generation.generate = generate
    if generation.mode == "server":
        generation._place_features = partial(_place, generation._place_features)


def scale_picture(image_processor: Any, picture: Any) -> Any:
    """Return a picture as the image processor of a Qwen-VL model scales it, before its numbers."""
    if not type(image_processor).__name__.startswith("Qwen2VL"):
        return picture
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import smart_resize

    height, width = smart_resize(
        picture.height,
        picture.width,
        factor=image_processor.patch_size * image_processor.merge_size,
        min_pixels=image_processor.size["shortest_edge"],
        max_pixels=image_processor.size["longest_edge"],
    )
    return picture.resize((width, height), image_processor.resample)


def collapse(prompt: Sequence[int], token: int) -> list[int]:
    runs = ((id_, list(run)) for id_, run in groupby(prompt))
    return [one for id_, run in runs for one in (run[:1] if id_ == token else run)]


def _place(place: Callable[..., Any], features: Any, prompt: Sequence[int]) -> Any:
    placed = place(features, prompt)
    if placed is not None:
        found, own = (
            [one["length"] for one in which["mm_placeholders"]["image"]]
            for which in (features, placed)
        )
        if found != own:
            fix = (
                "start the server with --mm-processor-kwargs "
                '\'{"min_pixels": ..., "max_pixels": ...}\' as wide as model.max_pixels'
            )
            raise _differ(sum(found), sum(own), fix=fix)
    return placed


def _differ(found: int, own: int, *, fix: str) -> TrainingError:
    return TrainingError(
        "vLLM reads a prompt's pictures otherwise than training does",
        got=f"{found} tokens",
        expected=f"{own}, or the same number of them in the same places",
        fix=fix,
    )


# ---- the check -----------------------------------------------------------------------------------


def check_sampler(
    trainer: Any,
    batch: Mapping[str, Any],
    settings: VllmSettings | None,
    *,
    max_gap: float = _MAX_LOGPROB_GAP,
) -> None:
    """See that the newest round of a FastGRPOTrainer was sampled from the policy; all take part.

    Args:
        trainer: that sampled.
        batch: of the round.
        settings: of vLLM; None: it did not sample.
        max_gap: mean difference of log-probabilities of its tokens, in nats, beyond which vLLM's
            weights are taken for others.
    """
    if settings is None:
        return
    gaps = [gap for part in gather_object([_list_gaps(trainer, batch)]) for gap in part]
    if not gaps:
        warnings.warn("what vLLM sampled could not be scored: weights are unchecked", stacklevel=2)
        return
    # Behind top_p vLLM's probabilities are of the kept tokens alone.
    limit = max_gap - math.log(trainer.top_p)
    mean = math.fsum(gaps) / len(gaps)
    if not mean <= limit:
        raise TrainingError(
            "vLLM did not sample from the policy: its weights are not those of training",
            got=f"log-probabilities of {len(gaps)} tokens that differ by {mean:.2g} on average",
            expected=f"at most {limit:.2g}",
            fix="see that the server serves the model that GRPO starts from, as grpo.vllm "
            "describes; for a model whose kernels differ so much (experts, quantisation), leave "
            "grpo.vllm out",
        )


@torch.no_grad()
def _list_gaps(trainer: Any, batch: Mapping[str, Any]) -> list[float]:
    mask = batch["completion_mask"].bool()
    sampled, own = batch["sampling_per_token_logps"], batch.get("old_per_token_logps")
    if own is None:
        ids, both = (
            torch.cat([batch[f"prompt_{kind}"], batch[f"completion_{kind}"]], dim=1)
            for kind in ("ids", "mask")
        )
        named = {name: batch.get(name) for name in PICTURE_NAMES}
        scored = trainer._collect_rows(ids, both, batch["completion_ids"].shape[1], named)
        if scored is None:
            return []
        rows = pick_rows(scored, _MAX_ROWS)
        own = trainer._score_plainly(trainer.model, scored.take(rows))
        sampled = sampled[rows][mask[rows]]
    else:
        own, sampled = own[mask], sampled[mask]
    # What vLLM could not score has no number there.
    return (own - sampled).abs()[~sampled.isnan()].tolist()
