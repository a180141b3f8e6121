"""A model in this process: batches by length, pictures made ready in the background."""

from collections import deque
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from groupwise.core import Completion
from groupwise.inference.engine import Sampling
from groupwise.inference.local import LocalEngine
from groupwise.inference.streaming.batches import form_batches, open_pool, prepare_ahead
from groupwise.inference.streaming.encoding import Encoded, Encoder, collate
from groupwise.inference.streaming.memory import (
    MemoryLimit,
    free_memory,
    halve,
    is_out_of_memory,
)
from groupwise.inference.streaming.pictures import measure_example
from groupwise.inference.streaming.settings import StreamSettings
from groupwise.inference.streaming.work import Failure, Outcome, WorkItem


class LocalBackend:
    """Answers with the policy of an engine.

    A batch that needs more memory than there is, is halved, and later ones are kept within what
    was learned. Only one stream at a time may be taken from it.

    Args:
        engine: its policy is asked; its batch size plays no part.
    """

    def __init__(self, engine: LocalEngine) -> None:
        self.engine = engine
        self._encoder = Encoder(engine.policy)
        self._limit = MemoryLimit()

    def stream(
        self, items: Iterator[WorkItem], *, sampling: Sampling, settings: StreamSettings
    ) -> Generator[tuple[int, Outcome]]:
        """Yield each item's number and outcome, batch by batch.

        Raises:
            ModelError: if the policy takes no pictures and an example has some.
        """
        prepare = partial(
            self._prepare, max_pixels=settings.max_pixels, max_new_tokens=sampling.max_new_tokens
        )
        with open_pool(settings.num_threads) as pool:
            batches = form_batches(
                items,
                measure=partial(_measure, pool, settings.max_pixels),
                batch_size=settings.batch_size,
                window=settings.window,
            )
            num_ahead = settings.num_prefetch
            for prepared in prepare_ahead(batches, prepare, pool=pool, num_ahead=num_ahead):
                yield from self._answer(prepared, sampling)

    def _prepare(
        self, item: WorkItem, *, max_pixels: int | None, max_new_tokens: int
    ) -> tuple[int, Encoded | Failure]:
        encoded = self._encoder.encode(item, max_pixels=max_pixels, max_new_tokens=max_new_tokens)
        return item.number, encoded

    def _answer(
        self, prepared: Sequence[tuple[int, Encoded | Failure]], sampling: Sampling
    ) -> Iterator[tuple[int, Outcome]]:
        rows: list[Encoded] = []
        for number, found in prepared:
            if isinstance(found, Failure):
                yield number, found
            else:
                rows.append(found)
        rows.sort(key=lambda row: row.num_tokens)
        waiting = deque([rows] if rows else [])
        while waiting:
            batch = waiting.popleft()
            outcomes = self._try(batch, sampling)
            if outcomes is None:
                waiting.extendleft(reversed([list(half) for half in halve(batch)]))
            else:
                yield from zip((row.number for row in batch), outcomes, strict=True)

    def _try(self, batch: Sequence[Encoded], sampling: Sampling) -> Sequence[Outcome] | None:
        """Return the outcomes of a batch, or None if it has to be halved."""
        length = max(row.num_tokens for row in batch) + sampling.max_new_tokens
        if not self._limit.fits(len(batch), length):
            return None
        completions = self._generate(batch, sampling)
        if completions is not None:
            return completions
        free_memory()
        if len(batch) == 1:
            tokens = f"{batch[0].num_tokens} tokens and up to {sampling.max_new_tokens} more"
            return [Failure("memory", f"out of memory with this prompt alone ({tokens})")]
        self._limit.lower(len(batch), length)
        return None

    def _generate(self, batch: Sequence[Encoded], sampling: Sampling) -> list[Completion] | None:
        """Return the completions, or None if memory does not suffice."""
        padding: Any = self.engine.policy.tokenizer.pad_token_id
        try:
            inputs = collate([row.inputs for row in batch], pad_token_id=padding)
            ids = [row.id for row in batch]
            return self.engine.generate_encoded(inputs, ids, sampling=sampling)
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
        return None


def _measure(
    pool: ThreadPoolExecutor, max_pixels: int | None, items: Sequence[WorkItem]
) -> list[float]:
    measure = partial(measure_example, max_pixels=max_pixels)
    return list(pool.map(measure, [item.example for item in items]))
