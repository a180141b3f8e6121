"""A model in this process: batches across groups, by length, pictures made ready in the background.

A batch is as slow as its longest row, so items of about one length go together, out of a bounded
window that is worked off before the next is taken. A batch that does not fit memory is halved.
"""

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from itertools import islice
from typing import Any, TypeVar

import torch

from groupwise.core import Completion
from groupwise.inference.engine import Sampling
from groupwise.inference.local import LocalEngine
from groupwise.inference.streaming.encoding import Encoded, Encoder, collate, measure_example
from groupwise.inference.streaming.pictures import open_memory
from groupwise.inference.streaming.work import Failure, Outcome, StreamSettings, WorkItem

R = TypeVar("R")


def form_batches(
    items: Iterator[WorkItem],
    *,
    measure: Callable[[Sequence[WorkItem]], Sequence[float]],
    batch_size: int,
    window: int,
) -> Iterator[list[WorkItem]]:
    """Yield batches of items of similar measure; those with the oldest items first."""
    while waiting := list(islice(items, window)):
        measured = zip(measure(waiting), waiting, strict=True)
        ordered = [item for _, item in sorted(measured, key=lambda pair: pair[0])]
        batches = [ordered[s : s + batch_size] for s in range(0, len(ordered), batch_size)]
        yield from sorted(batches, key=lambda batch: min(item.number for item in batch))


def prepare_ahead(
    batches: Iterable[Sequence[WorkItem]],
    prepare: Callable[[WorkItem], R],
    *,
    pool: ThreadPoolExecutor,
    num_ahead: int,
) -> Iterator[list[R]]:
    """Yield each batch prepared; so many of the next ones are begun before it is yielded."""
    begun: deque[list[Future[R]]] = deque()
    for batch in batches:
        begun.append([pool.submit(prepare, item) for item in batch])
        if len(begun) > num_ahead:
            yield [future.result() for future in begun.popleft()]
    while begun:
        yield [future.result() for future in begun.popleft()]


@contextmanager
def open_pool(num_threads: int) -> Generator[ThreadPoolExecutor]:
    """Give threads for pictures; what has not begun by the end never does."""
    pool = ThreadPoolExecutor(num_threads, thread_name_prefix="pictures")
    try:
        yield pool
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


T = TypeVar("T")
_SIGNS = (
    "out of memory",
    "can't allocate memory",
    "cannot allocate memory",
    "CUBLAS_STATUS_ALLOC_FAILED",
)


def is_out_of_memory(error: BaseException) -> bool:
    """Say whether an error means that memory, of whichever device, did not suffice."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and any(sign in str(error) for sign in _SIGNS)


def free_memory() -> None:
    """Give back what the allocator holds; call it when the error is no longer referred to."""
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


class MemoryLimit:
    """How many tokens, padding and answers included, were too many for one batch."""

    def __init__(self) -> None:
        self.num_tokens: float = float("inf")

    def fits(self, num_rows: int, num_tokens_per_row: int) -> bool:
        """Say whether a batch may be tried; one row always may."""
        return num_rows == 1 or num_rows * num_tokens_per_row <= self.num_tokens

    def lower(self, num_rows: int, num_tokens_per_row: int) -> None:
        """Remember a batch that did not fit: half of it is tried next."""
        half = -(-num_rows // 2)
        self.num_tokens = min(self.num_tokens, half * num_tokens_per_row)


def halve(rows: Sequence[T]) -> tuple[Sequence[T], Sequence[T]]:
    """Return both halves; the first is the larger one."""
    middle = -(-len(rows) // 2)
    return rows[:middle], rows[middle:]


class LocalBackend:
    """Answers with the policy of an engine.

    A batch that needs more memory than there is, is halved, and later ones are kept within what
    was learned. Only one stream at a time may be taken from it.

    Args:
        engine: its policy is asked; its batch size plays no part.
        picture_mib: of the device's memory for features of pictures: one that stands in several
            prompts is encoded once (Qwen2-VL and Qwen2.5-VL; other models encode it each time). The
            policy must not change then. 0: none is kept.
    """

    def __init__(self, engine: LocalEngine, *, picture_mib: float = 0) -> None:
        self.engine = engine
        self._memory = open_memory(engine.policy, max_mib=picture_mib)
        self._encoder = Encoder(engine.policy, self._memory)
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
            seen = [picture for row in batch for picture in row.pictures]
            features = self._memory.look(seen) if self._memory is not None and seen else None
            return self.engine.generate_encoded(inputs, ids, sampling=sampling, features=features)
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
        return None


def _measure(
    pool: ThreadPoolExecutor, max_pixels: int | None, items: Sequence[WorkItem]
) -> list[float]:
    measure = partial(measure_example, max_pixels=max_pixels)
    return list(pool.map(measure, [item.example for item in items]))
