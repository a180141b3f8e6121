"""Pictures as vLLM is shown them: of the size that training sees, with one placeholder each.

vLLM processes pictures itself, by the limits of the model's own files. TRL gives it the pictures
as they were and, in its process, prompts whose placeholders are written out already; vLLM writes
the first of each out once more (https://github.com/huggingface/trl/issues/6294). Neither raises.
Here it is shown what its processor leaves as it is, and what it made of it is compared.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import groupby
from typing import Any

from groupwise.core import TrainingError


@contextmanager
def forward_limits(processor: Any) -> Iterator[None]:
    """Within this context an engine of vLLM that TRL builds has the processor's pixel limits.

    Args:
        processor: of the policy; one without limits, or a tokenizer, changes nothing.
    """
    import trl.generation.vllm_generation

    module: Any = trl.generation.vllm_generation
    own = getattr(module, "LLM", None)
    size = getattr(getattr(processor, "image_processor", None), "size", None) or {}
    if own is None or "longest_edge" not in size:
        yield
        return
    limits = {"min_pixels": size["shortest_edge"], "max_pixels": size["longest_edge"]}
    module.LLM = partial(own, mm_processor_kwargs=limits)
    try:
        yield
    finally:
        module.LLM = own


def show_pictures(generation: Any, processor: Any) -> None:
    """Let TRL's VLLMGeneration show pictures as training sees them, and compare.

    Args:
        generation: of a trainer.
        processor: of the policy, with the limits of training.
    """
    image_processor = getattr(processor, "image_processor", None)
    if image_processor is None:
        return
    fit = partial(scale_picture, image_processor)
    if generation.mode == "server":
        generation._place_features = partial(_place, generation._place_features)
        generation.generate = partial(_show, generation.generate, fit)
    else:
        token = processor.image_token_id
        generation.generate = partial(_show_collapsed, generation.generate, fit, token)


def scale_picture(image_processor: Any, picture: Any) -> Any:
    """Return a picture as the image processor of a Qwen-VL model scales it, before its numbers.

    A processor with the same or wider limits then scales nothing, so that its pixels are the same
    whatever implementation it is. Pictures of other processors are returned as they are.

    Args:
        image_processor: Pillow's, with the limits of training.
        picture: in RGB.
    """
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
    """Return a prompt with one placeholder where there is a run of them."""
    runs = ((id_, list(run)) for id_, run in groupby(prompt))
    return [one for id_, run in runs for one in (run[:1] if id_ == token else run)]


Generate = Callable[..., tuple[Any, ...]]


def _show(
    generate: Generate,
    fit: Callable[[Any], Any],
    prompts: Sequence[Sequence[int]],
    images: Any,
    **named: Any,
) -> tuple[Any, ...]:
    """Generate from pictures that are scaled once each, however many rows have them."""
    if images is None:
        return generate(prompts=prompts, images=None, **named)
    distinct = {id(one): one for row in images for one in row or ()}
    scaled = {place: fit(one) for place, one in distinct.items()}
    shown = [row and [scaled[id(one)] for one in row] for row in images]
    return generate(prompts=prompts, images=shown, **named)


def _show_collapsed(
    generate: Generate,
    fit: Callable[[Any], Any],
    token: int,
    prompts: Sequence[Sequence[int]],
    images: Any,
    **named: Any,
) -> tuple[Any, ...]:
    """Generate in this process, and see that vLLM wrote out the prompts of training."""
    if images is None:
        return generate(prompts=prompts, images=None, **named)
    given = [collapse(prompt, token) for prompt in prompts]
    seen, *rest = _show(generate, fit, given, images, **named)
    for own, other in zip(prompts, seen, strict=True):
        if list(own) != list(other):
            raise _differ(len(other), len(own), fix="leave grpo.vllm out for this model")
    return (seen, *rest)


def _place(place: Callable[..., Any], features: Any, prompt: Sequence[int]) -> Any:
    """Place what a server made of pictures, and see that it is as long as in training."""
    placed = place(features, prompt)
    if placed is not None:
        found, own = (
            [one["length"] for one in which["mm_placeholders"]["image"]]
            for which in (features, placed)
        )
        if found != own:
            raise _differ(
                sum(found),
                sum(own),
                fix="start the server with --mm-processor-kwargs "
                '\'{"min_pixels": ..., "max_pixels": ...}\' as wide as model.max_pixels',
            )
    return placed


def _differ(found: int, own: int, *, fix: str) -> TrainingError:
    return TrainingError(
        "vLLM reads a prompt's pictures otherwise than training does",
        got=f"{found} tokens",
        expected=f"{own}, or the same number of them in the same places",
        fix=fix,
    )
