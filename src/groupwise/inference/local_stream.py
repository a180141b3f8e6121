"""A model in this process: batches across groups, by length, pictures made ready in the background.

A batch is as slow as its longest row, so items of about one length go together, out of a bounded
window that is worked off before the next is taken. While the model answers one batch, threads open
the pictures of the next and encode it. A batch that does not fit memory is halved.
"""

import copy
import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import islice
from typing import TypeVar

import torch
from PIL import Image

from groupwise.core import Completion, DataError, Example
from groupwise.inference.local import Encoded, LocalModel
from groupwise.inference.model import Sampling
from groupwise.inference.pictures import measure_example, open_limited
from groupwise.inference.stream import LOOK_AHEAD, Failure, Outcome, StreamSettings, WorkItem

T = TypeVar("T")
R = TypeVar("R")
Row = tuple[WorkItem, Sequence[Image.Image]]
"""An item with its opened pictures."""

_NUM_THREADS = 4
"""They read, decode and scale pictures."""
_SIGNS = (
    "out of memory",
    "can't allocate memory",
    "cannot allocate memory",
    "CUBLAS_STATUS_ALLOC_FAILED",
)


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
    batches: Iterable[T], prepare: Callable[[T], R], *, thread: ThreadPoolExecutor
) -> Iterator[R]:
    """Yield each batch prepared; the next one is begun before it is."""
    begun: Future[R] | None = None
    for batch in batches:
        before, begun = begun, thread.submit(prepare, batch)
        if before is not None:
            yield before.result()
    if begun is not None:
        yield begun.result()


def is_out_of_memory(error: BaseException) -> bool:
    """Say whether an error means that memory, of whichever device, did not suffice."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and any(sign in str(error) for sign in _SIGNS)


@dataclass(frozen=True, slots=True)
class _Ready:
    """A batch that can be answered, and what was found not to be."""

    rows: Sequence[Row] = ()
    encoded: Encoded | None = None  # of the rows; None: they cannot be encoded together
    failures: Sequence[tuple[int, Failure]] = ()


class LocalStream:
    """Answers with the policy of a model.

    A batch that needs more memory than there is, is halved, and later ones are kept within what
    was learned. Only one stream at a time may be taken from it.

    Args:
        model: its policy is asked; its batch size plays no part.
    """

    def __init__(self, model: LocalModel) -> None:
        self.model = model
        # A tokenizer must not be used by two threads at a time, and answers are read beside it.
        self._encoder: LocalModel | None = None
        self._encoding = threading.Lock()
        self._most_tokens = float("inf")  # of a batch, padding and answers included

    def stream(
        self, items: Iterator[WorkItem], *, sampling: Sampling, settings: StreamSettings
    ) -> Generator[tuple[int, Outcome]]:
        """Yield each item's number and outcome, batch by batch.

        Raises:
            ModelError: if the policy takes no pictures and an example has some.
        """
        size, max_pixels = settings.batch_size, settings.max_pixels
        num_new_tokens = sampling.max_new_tokens
        pool = ThreadPoolExecutor(_NUM_THREADS, thread_name_prefix="pictures")
        thread = ThreadPoolExecutor(1, thread_name_prefix="pictures of a batch")

        def measure(waiting: Sequence[WorkItem]) -> list[float]:
            return list(pool.map(lambda item: measure_example(item.example, max_pixels), waiting))

        def prepare(batch: Sequence[WorkItem]) -> _Ready:
            opened = list(pool.map(lambda item: _open(item.example, max_pixels), batch))
            both = list(zip(batch, opened, strict=True))
            failures = [(item.number, one) for item, one in both if isinstance(one, Failure)]
            rows = [(item, one) for item, one in both if not isinstance(one, Failure)]
            ready = self._encode(rows, num_new_tokens)
            return replace(ready, failures=[*failures, *ready.failures])

        batches = form_batches(items, measure=measure, batch_size=size, window=size * LOOK_AHEAD)
        try:
            for ready in prepare_ahead(batches, prepare, thread=thread):
                yield from self._answer(ready, sampling)
        finally:
            for one in (thread, pool):
                one.shutdown(wait=True, cancel_futures=True)  # what has not begun never does

    def _encode(self, rows: Sequence[Row], num_new_tokens: int) -> _Ready:
        """Return rows ready to be answered, without those that cannot be."""
        if not rows:
            return _Ready()
        try:
            encoded = self._encode_together(rows)
        except DataError as error:
            if len(rows) == 1:
                return _Ready(failures=[(rows[0][0].number, Failure("picture", str(error)))])
            alone = [self._encode([row], num_new_tokens) for row in rows]
            failures = [failure for one in alone for failure in one.failures]
            if not failures:
                return _Ready(rows)
            good = self._encode([row for one in alone for row in one.rows], num_new_tokens)
            return replace(good, failures=[*failures, *good.failures])
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            return _Ready(rows)
        limit = self.model.policy.max_tokens
        if limit is None or max(encoded.lengths) + num_new_tokens <= limit:
            return _Ready(rows, encoded)
        failures: list[tuple[int, Failure]] = []
        kept: list[Row] = []
        for row, length in zip(rows, encoded.lengths, strict=True):
            if length + num_new_tokens <= limit:
                kept.append(row)
                continue
            what = f"the prompt has {length} tokens and the answer up to {num_new_tokens}"
            told = Failure("too_long", f"{what}; the model takes {limit} together")
            failures.append((row[0].number, told))
        return replace(self._encode(kept, num_new_tokens), failures=failures)

    def _encode_together(self, rows: Sequence[Row]) -> Encoded:
        with self._encoding:
            if self._encoder is None:
                policy = self.model.policy
                own = replace(policy, processor=copy.deepcopy(policy.processor))
                self._encoder = LocalModel(own)
            examples = [item.example for item, _ in rows]
            return self._encoder.encode_batch(examples, [pictures for _, pictures in rows])

    def _answer(self, ready: _Ready, sampling: Sampling) -> Iterator[tuple[int, Outcome]]:
        """Yield the outcomes of a batch; one that does not fit memory is halved."""
        yield from ready.failures
        rows, encoded = ready.rows, ready.encoded
        if not rows:
            return
        middle, completions = -(-len(rows) // 2), None
        if encoded is not None:
            num_tokens = max(encoded.lengths) + sampling.max_new_tokens
            if len(rows) == 1 or len(rows) * num_tokens <= self._most_tokens:
                completions = self._generate(encoded, sampling)
                if completions is None:
                    # The error is no longer referred to: what the allocator holds can be given
                    # back.
                    if torch.cuda.is_available():
                        torch.cuda.empty_cache()
                    if len(rows) > 1:
                        self._most_tokens = min(self._most_tokens, middle * num_tokens)
        if completions is not None:
            yield from zip((item.number for item, _ in rows), completions, strict=True)
        elif len(rows) > 1:
            for half in (rows[:middle], rows[middle:]):
                yield from self._answer(self._encode(half, sampling.max_new_tokens), sampling)
        else:
            length = "" if encoded is None else f"{encoded.lengths[0]} tokens and "
            tokens = f"{length}up to {sampling.max_new_tokens} more"
            what = f"out of memory with this prompt alone ({tokens})"
            yield rows[0][0].number, Failure("memory", what)

    def _generate(self, encoded: Encoded, sampling: Sampling) -> Sequence[Completion] | None:
        """Return the completions, or None if memory does not suffice."""
        try:
            return self.model.generate_batch(encoded, sampling=sampling)
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
        return None


def _open(example: Example, max_pixels: int | None) -> list[Image.Image] | Failure:
    try:
        return [open_limited(picture, max_pixels) for picture in example.pictures]
    except DataError as error:
        return Failure("picture", str(error))
    except MemoryError:
        return Failure("memory", "out of memory while its pictures were decoded")
