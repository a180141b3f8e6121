"""A model in this process: batches across groups, by length, pictures made ready in the background.

A batch is as slow as its longest row, so examples of about one length go together, out of a bounded
window that is worked off before the next is taken. While the model answers one batch, threads open
the pictures of the next and encode it. A batch that cannot be answered together, for lack of memory
or because of one of its examples, is halved: what cannot be answered alone is that one's failure.
"""

import copy
import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from itertools import islice
from typing import Any, TypeVar

import torch
from PIL import Image

from groupwise.core import Completion, DataError, Example
from groupwise.inference.local import Encoded, LocalModel
from groupwise.inference.model import Sampling
from groupwise.inference.pictures import measure_example, open_limited
from groupwise.inference.settings import LOOK_AHEAD, StreamSettings
from groupwise.inference.stream import Failure, Outcome

T = TypeVar("T")
R = TypeVar("R")
Row = tuple[int, Example, Any]
"""An example with its number and its opened pictures."""
Broken = tuple[int, Failure]

_NUM_THREADS = 4
"""They read, decode and scale pictures."""
_SIGNS = (
    *("out of memory", "can't allocate memory", "cannot allocate memory"),
    "CUBLAS_STATUS_ALLOC_FAILED",
)


def form_batches(
    examples: Iterable[T],
    *,
    measure: Callable[[Sequence[T]], Sequence[float]],
    batch_size: int,
    window: int,
) -> Iterator[list[tuple[int, T]]]:
    """Yield batches of numbered examples of similar measure; those with the oldest first."""
    numbered = enumerate(examples)
    while waiting := list(islice(numbered, window)):
        measures = measure([example for _, example in waiting])
        pairs = sorted(zip(measures, waiting, strict=True), key=lambda pair: pair[0])
        ordered = [one for _, one in pairs]
        batches = [ordered[s : s + batch_size] for s in range(0, len(ordered), batch_size)]
        yield from sorted(batches, key=lambda batch: min(number for number, _ in batch))


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


class LocalStream:
    """Answers with the policy of a model.

    Where a batch needed more memory than there is, later ones are kept within what was learned.
    Only one stream at a time may be taken from it.

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
        self, examples: Iterator[Example], *, sampling: Sampling, settings: StreamSettings
    ) -> Generator[tuple[int, Outcome]]:
        """Yield each example's number and outcome, batch by batch.

        Raises:
            ModelError: if the policy takes no pictures and an example has some.
        """
        size, max_pixels = settings.batch_size, settings.max_pixels
        pool = ThreadPoolExecutor(_NUM_THREADS, thread_name_prefix="pictures")
        thread = ThreadPoolExecutor(1, thread_name_prefix="pictures of a batch")

        def measure(waiting: Sequence[Example]) -> list[float]:
            return list(pool.map(lambda one: measure_example(one, max_pixels), waiting))

        def open_pictures(example: Example) -> list[Image.Image] | Failure:
            try:
                return [open_limited(picture, max_pixels) for picture in example.pictures]
            except DataError as error:
                return Failure("picture", str(error))
            except MemoryError:
                return Failure("memory", "out of memory while its pictures were decoded")

        def prepare(batch: Sequence[tuple[int, Example]]) -> tuple[list[Row], Any, list[Broken]]:
            opened = pool.map(lambda one: open_pictures(one[1]), batch)
            found = [(*one, shown) for one, shown in zip(batch, opened, strict=True)]
            rows = [row for row in found if not isinstance(row[2], Failure)]
            broken = [(row[0], row[2]) for row in found if isinstance(row[2], Failure)]
            return rows, self._encode(rows, sampling) if rows else None, broken

        batches = form_batches(examples, measure=measure, batch_size=size, window=size * LOOK_AHEAD)
        try:
            for rows, encoded, broken in prepare_ahead(batches, prepare, thread=thread):
                yield from broken
                if rows:
                    yield from self._answer(rows, encoded, sampling)
        finally:
            for one in (thread, pool):
                one.shutdown(wait=True, cancel_futures=True)  # what has not begun never does

    def _encode(self, rows: Sequence[Row], sampling: Sampling) -> Encoded | Failure:
        """Return rows as the model takes them together, or why it does not."""
        num_new_tokens = sampling.max_new_tokens
        try:
            with self._encoding:
                if self._encoder is None:
                    policy = self.model.policy
                    own = replace(policy, processor=copy.deepcopy(policy.processor))
                    self._encoder = LocalModel(own)
                examples, pictures = [row[1] for row in rows], [row[2] for row in rows]
                encoded = self._encoder.encode_batch(examples, pictures)
        except DataError as error:
            return Failure("picture", str(error))
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            tokens = f"up to {num_new_tokens} more"
            return Failure("memory", f"out of memory with this prompt alone ({tokens})")
        limit, length = self.model.policy.max_tokens, max(encoded.lengths)
        if limit is not None and length + num_new_tokens > limit:
            what = f"the prompt has {length} tokens and the answer up to {num_new_tokens}"
            return Failure("too_long", f"{what}; the model takes {limit} together")
        return encoded

    def _answer(
        self, rows: Sequence[Row], encoded: Encoded | Failure, sampling: Sampling
    ) -> Iterator[tuple[int, Outcome]]:
        """Yield the outcomes of a batch; one that cannot be answered together is halved."""
        middle = -(-len(rows) // 2)
        if isinstance(encoded, Failure):
            failure = encoded
        else:
            length = max(encoded.lengths)
            num_tokens = length + sampling.max_new_tokens
            if len(rows) == 1 or len(rows) * num_tokens <= self._most_tokens:
                completions = self._generate(encoded, sampling)
                if completions is not None:
                    yield from zip((number for number, *_ in rows), completions, strict=True)
                    return
                # The error is no longer referred to: what the allocator holds can be given back.
                if torch.cuda.is_available():
                    torch.cuda.empty_cache()
                if len(rows) > 1:
                    self._most_tokens = min(self._most_tokens, middle * num_tokens)
            tokens = f"{length} tokens and up to {sampling.max_new_tokens} more"
            failure = Failure("memory", f"out of memory with this prompt alone ({tokens})")
        if len(rows) == 1:
            yield rows[0][0], failure
            return
        for half in (rows[:middle], rows[middle:]):
            yield from self._answer(half, self._encode(half, sampling), sampling)

    def _generate(self, encoded: Encoded, sampling: Sampling) -> Sequence[Completion] | None:
        """Return the completions, or None if memory does not suffice."""
        try:
            return self.model.generate_batch(encoded, sampling=sampling)
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
        return None
