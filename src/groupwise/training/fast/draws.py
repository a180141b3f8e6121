"""Each completion is drawn from its row's seed, whatever samples it.

vLLM is given the seeds with each request; how far its draws follow from them is up to it.
"""

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from types import SimpleNamespace
from typing import Any

from accelerate.utils import gather_object

from groupwise.inference.local import RowKey, draw_by_row

_MAX_REQUESTS = 64


@contextmanager
def draw_from_seeds(trainer: Any, rows: Sequence[Mapping[str, Any]]) -> Iterator[None]:
    """Within this context a trainer samples by the ``sampling_seed`` of its rows, if any."""
    if "sampling_seed" not in rows[0]:
        yield
        return
    keys = number_completions(
        [row["sampling_seed"] for row in rows],
        first=trainer.accelerator.process_index * len(rows),
        group_size=trainer.num_generations,
    )
    if trainer.use_vllm:
        owner, generate = _seed_requests(trainer, keys)
    else:
        owner = trainer.accelerator.unwrap_model(trainer.model)
        generate = partial(owner.generate, custom_generate=draw_by_row(keys))
    before = vars(owner).get("generate")
    owner.generate = generate
    try:
        yield
    finally:
        del owner.generate
        if before is not None:
            owner.generate = before


def number_completions(seeds: Sequence[int], *, first: int, group_size: int) -> list[RowKey]:
    """Return each row's seed and the number of its completion in its group, which may span two."""
    return [(seed, (first + place) % group_size) for place, seed in enumerate(seeds)]


def _seed_requests(trainer: Any, keys: Sequence[RowKey]) -> tuple[Any, Callable[..., Any] | None]:
    vllm = trainer.vllm_generation
    if vllm.mode == "server":  # which draws the completions of a prompt from seed, seed + 1, ...
        firsts = [seed for seed, _ in gather_object(list(keys))[:: trainer.num_generations]]
        if not trainer.accelerator.is_main_process:  # which asks for all
            return SimpleNamespace(), None
        return vllm.vllm_client, partial(_ask_one_by_one, vllm.vllm_client.generate, firsts)
    seeds = [seed + number for seed, number in keys]
    own = vllm.llm.generate

    def generate(prompts: Any, *, sampling_params: Any, **to: Any) -> Any:
        each = [copy.copy(sampling_params) for _ in seeds]
        for params, seed in zip(each, seeds, strict=True):
            params.seed = seed
        return own(prompts, sampling_params=each, **to)

    return vllm.llm, generate


def _ask_one_by_one(
    generate: Callable[..., Any],
    seeds: Sequence[int],
    *,
    prompts: Sequence[Any],
    features: Sequence[Any] | None,
    generation_kwargs: Mapping[str, Any] | None,
    **named: Any,
) -> dict[str, Any]:
    """Send each prompt in a request of its own, for a request has one seed; return all answers."""

    def ask(place: int) -> Mapping[str, Any]:
        return generate(
            prompts=[prompts[place]],
            features=None if features is None else [features[place]],
            generation_kwargs={**(generation_kwargs or {}), "seed": seeds[place]},
            **named,
        )

    with ThreadPoolExecutor(min(_MAX_REQUESTS, len(prompts))) as pool:
        answers = list(pool.map(ask, range(len(prompts))))
    return {
        name: None if answers[0][name] is None else [one for a in answers for one in a[name]]
        for name in answers[0]
    }
