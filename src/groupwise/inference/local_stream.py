"""A model in this process: batches across groups, by length, pictures made ready in the background.

A batch is as slow as its longest row, so items of about one length go together, out of a bounded
window that is worked off before the next is taken. A batch that does not fit memory is halved.

A few-shot prompt shows the same demonstrations again and again. What a vision tower makes of a
picture depends on nothing but the picture, so it may be kept, and only the words are read anew.
"""

import copy
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import islice
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

import torch
from transformers.modeling_outputs import BaseModelOutputWithPooling

from groupwise.core import DataError, Picture
from groupwise.inference.local import LocalModel
from groupwise.inference.model import Sampling
from groupwise.inference.pictures import measure_example, open_limited
from groupwise.inference.stream import LOOK_AHEAD, Failure, Outcome, StreamSettings, WorkItem
from groupwise.models.policy import Policy

R = TypeVar("R")
_Key = tuple[str, int | None]

_NUM_AHEAD = 1
"""Batches whose pictures are made ready while the model answers another."""
_NUM_THREADS = 4
"""They read, decode and scale pictures."""
_MODEL_TYPES = ("qwen2_vl", "qwen2_5_vl")
"""Models that can be given features in place of pictures."""
_AT_ONCE = 16
_PER_TOKEN = ("input_ids", "attention_mask", "mm_token_type_ids", "token_type_ids")
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


def is_out_of_memory(error: BaseException) -> bool:
    """Say whether an error means that memory, of whichever device, did not suffice."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and any(sign in str(error) for sign in _SIGNS)


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


@dataclass(eq=False, slots=True)
class SeenPicture:
    """A picture before and after the vision tower."""

    key: _Key  # digest and pixel limit
    grid: torch.Tensor  # patches in time, height and width, shape [1, 3]
    pixels: torch.Tensor | None  # shape [patches, values]; None once the features are there
    features: torch.Tensor | None = None  # shape [tokens, hidden]; None before

    @property
    def num_bytes(self) -> int:
        """Of the features."""
        return 0 if self.features is None else self.features.nbytes


class PictureMemory:
    """Keeps features of pictures; those that were not used for longest go first.

    Args:
        policy: must not change while this is in use.
        max_mib: of features; those of a batch are there besides.
    """

    def __init__(self, policy: Policy, *, max_mib: float) -> None:
        self.policy = policy
        self._max_bytes = int(max_mib * 2**20)
        self._seen: OrderedDict[_Key, SeenPicture] = OrderedDict()
        self._num_bytes = 0
        self._lock = threading.Lock()

    def find(self, key: _Key, process: Callable[[], Any]) -> SeenPicture:
        """Return a picture, processed now if it is not known; called by any thread."""
        with self._lock:
            if key in self._seen:
                self._seen.move_to_end(key)
                return self._seen[key]
        inputs = process()
        found = SeenPicture(key, inputs["image_grid_thw"], inputs["pixel_values"])
        with self._lock:
            return self._seen.setdefault(key, found)

    @torch.no_grad()
    def look(self, pictures: Sequence[SeenPicture]) -> Any:
        """Return the features of a batch's pictures as the model's own encoder does."""
        # By identity: one that was dropped may have been processed again beside its former self.
        new = list(dict.fromkeys(one for one in pictures if one.features is None))
        model: Any = self.policy.model
        for start in range(0, len(new), _AT_ONCE):
            part = new[start : start + _AT_ONCE]
            pixels = torch.cat([one.pixels for one in part if one.pixels is not None])
            grids = torch.cat([one.grid for one in part])
            encoded = model.get_image_features(
                pixels.to(model.device), grids.to(model.device), return_dict=True
            )
            for picture, features in zip(part, encoded.pooler_output, strict=True):
                # A part of a tensor would keep the whole of it.
                picture.features, picture.pixels = features.clone(), None
                self._keep(picture)
        features: Any = tuple(one.features for one in pictures)
        return BaseModelOutputWithPooling(pooler_output=features)

    def _keep(self, picture: SeenPicture) -> None:
        with self._lock:
            former = self._seen.pop(picture.key, None)
            if former is not None and former is not picture:
                self._num_bytes -= former.num_bytes
            self._seen[picture.key] = picture
            self._num_bytes += picture.num_bytes
            while self._num_bytes > self._max_bytes:
                _, oldest = self._seen.popitem(last=False)
                self._num_bytes -= oldest.num_bytes


def open_memory(policy: Policy, *, max_mib: float) -> PictureMemory | None:
    """Return a memory, or None where nothing is to be kept or the model cannot be given features.

    Qwen2-VL and Qwen2.5-VL can.
    """
    if max_mib <= 0:
        return None
    can_take = policy.has_vision and policy.model.config.model_type in _MODEL_TYPES
    return PictureMemory(policy, max_mib=max_mib) if can_take else None


@dataclass(frozen=True, slots=True)
class Encoded:
    """A prompt as the model's inputs, a batch of one row."""

    number: int  # of the item
    id: str  # of its example
    inputs: Mapping[str, Any]  # tensors by name
    # Whose features stand for the pixels, in order; empty if pixels are among the inputs.
    pictures: tuple[SeenPicture, ...] = ()

    @property
    def num_tokens(self) -> int:
        """Length of the prompt, pictures included."""
        return int(self.inputs["input_ids"].shape[-1])


class Encoder:
    """Makes prompts ready in several threads at once.

    A processor must not be used by two threads at a time, so each call takes a copy that is free;
    there are as many copies as there were calls at once.

    Args:
        policy: whose prompts they are.
        memory: of pictures; None: each prompt has the pixels of its own.
    """

    def __init__(self, policy: Policy, memory: PictureMemory | None = None) -> None:
        self.policy = policy
        self.memory = memory
        self._free: SimpleQueue[Policy] = SimpleQueue()
        self._copying = threading.Lock()

    def encode(
        self, item: WorkItem, *, max_pixels: int | None, max_new_tokens: int
    ) -> Encoded | Failure:
        """Return the inputs of an item, or why there are none."""
        try:
            policy = self._free.get_nowait()
        except Empty:
            with self._copying:
                policy = replace(self.policy, processor=copy.deepcopy(self.policy.processor))
        try:
            encoded = self._encode(policy, item, max_pixels)
        except DataError as error:
            return Failure("picture", str(error))
        except MemoryError:
            return Failure("memory", "out of memory while its pictures were decoded")
        finally:
            self._free.put(policy)
        limit = policy.max_tokens
        if limit is None or encoded.num_tokens + max_new_tokens <= limit:
            return encoded
        return Failure(
            "too_long",
            f"the prompt has {encoded.num_tokens} tokens and the answer up to {max_new_tokens}; "
            f"the model takes {limit} together",
        )

    def _encode(self, policy: Policy, item: WorkItem, max_pixels: int | None) -> Encoded:
        text, shown = policy.render_prompt(item.example), item.example.pictures
        try:
            if self.memory is not None and shown:
                seen = tuple(self._find(policy, picture, max_pixels) for picture in shown)
                inputs = _write_tokens(policy.processor, text, [picture.grid for picture in seen])
                return Encoded(item.number, item.example.id, inputs, seen)
            named = {"images": [[open_limited(one, max_pixels) for one in shown]]} if shown else {}
            inputs = dict(policy.processor(text=[text], return_tensors="pt", **named))
        except ValueError as error:
            raise DataError(f"the pictures cannot be used ({error})") from error
        return Encoded(item.number, item.example.id, inputs)

    def _find(self, policy: Policy, picture: Picture, max_pixels: int | None) -> SeenPicture:
        assert self.memory is not None
        return self.memory.find(
            (picture.digest, max_pixels),
            lambda: policy.processor.image_processor(
                images=[open_limited(picture, max_pixels)], return_tensors="pt"
            ),
        )


def collate(rows: Sequence[Mapping[str, Any]], *, pad_token_id: int) -> dict[str, Any]:
    """Return rows as one batch: token by token padded on the left, all else one after another."""
    length = max(int(row["input_ids"].shape[-1]) for row in rows)
    names = dict.fromkeys(name for row in rows for name in row)
    batch: dict[str, Any] = {}
    for name in names:
        parts = [row[name] for row in rows if name in row]
        if name in _PER_TOKEN:
            fill = pad_token_id if name == "input_ids" else 0
            gaps = [(length - part.shape[-1], 0) for part in parts]
            pad = torch.nn.functional.pad
            parts = [pad(part, gap, value=fill) for part, gap in zip(parts, gaps, strict=True)]
        batch[name] = torch.cat(parts)
    return batch


def _write_tokens(processor: Any, text: str, grids: Sequence[torch.Tensor]) -> dict[str, Any]:
    """Return the inputs of a prompt without its pixels, as the processor writes them.

    Args:
        processor: a ``PictureProcessor``.
        text: with one placeholder for each picture.
        grids: of the pictures, each of shape [1, 3].
    """
    first, *rest = text.split(processor.image_token)
    if len(rest) != len(grids):
        raise DataError("a prompt has other placeholders than pictures", got=len(rest))
    merged = processor.image_processor.merge_size**2
    shown = [processor.image_token * (int(grid.prod()) // merged) for grid in grids]
    written = first + "".join(map("".join, zip(shown, rest, strict=True)))
    inputs = dict(processor.tokenizer([written], return_tensors="pt"))
    types = (inputs["input_ids"] == processor.image_token_id).long()
    return {**inputs, "mm_token_type_ids": types, "image_grid_thw": torch.cat(list(grids))}


class LocalStream:
    """Answers with the policy of a model.

    A batch that needs more memory than there is, is halved, and later ones are kept within what
    was learned. Only one stream at a time may be taken from it.

    Args:
        model: its policy is asked; its batch size plays no part.
        picture_mib: of the device's memory for features of pictures: one that stands in several
            prompts is encoded once (Qwen2-VL and Qwen2.5-VL; other models encode it each time). The
            policy must not change then. 0: none is kept.
    """

    def __init__(self, model: LocalModel, *, picture_mib: float = 0) -> None:
        self.model = model
        self._memory = open_memory(model.policy, max_mib=picture_mib)
        self._encoder = Encoder(model.policy, self._memory)
        self._limit = MemoryLimit()

    def stream(
        self, items: Iterator[WorkItem], *, sampling: Sampling, settings: StreamSettings
    ) -> Generator[tuple[int, Outcome]]:
        """Yield each item's number and outcome, batch by batch.

        Raises:
            ModelError: if the policy takes no pictures and an example has some.
        """
        size, max_pixels = settings.batch_size, settings.max_pixels
        pool = ThreadPoolExecutor(_NUM_THREADS, thread_name_prefix="pictures")

        def measure(found: Sequence[WorkItem]) -> list[float]:
            return list(pool.map(lambda item: measure_example(item.example, max_pixels), found))

        def prepare(item: WorkItem) -> tuple[int, Encoded | Failure]:
            named = {"max_pixels": max_pixels, "max_new_tokens": sampling.max_new_tokens}
            return item.number, self._encoder.encode(item, **named)

        batches = form_batches(items, measure=measure, batch_size=size, window=size * LOOK_AHEAD)
        try:
            for prepared in prepare_ahead(batches, prepare, pool=pool, num_ahead=_NUM_AHEAD):
                yield from ((n, found) for n, found in prepared if isinstance(found, Failure))
                rows = [found for _, found in prepared if not isinstance(found, Failure)]
                yield from self._answer(sorted(rows, key=lambda row: row.num_tokens), sampling)
        finally:
            pool.shutdown(wait=True, cancel_futures=True)  # what has not begun never does

    def _answer(self, rows: Sequence[Encoded], sampling: Sampling) -> Iterator[tuple[int, Outcome]]:
        """Yield the outcomes of a batch; one that does not fit memory is halved."""
        if not rows:
            return
        length = max(row.num_tokens for row in rows) + sampling.max_new_tokens
        found: Sequence[Outcome] | None = None
        if self._limit.fits(len(rows), length):
            found = self._generate(rows, sampling)
            if found is None:
                # The error is no longer referred to: what the allocator holds can be given back.
                if torch.cuda.is_available():
                    torch.cuda.empty_cache()
                if len(rows) > 1:
                    self._limit.lower(len(rows), length)
        if found is None and len(rows) > 1:
            middle = -(-len(rows) // 2)
            yield from self._answer(rows[:middle], sampling)
            yield from self._answer(rows[middle:], sampling)
            return
        if found is None:
            tokens = f"{rows[0].num_tokens} tokens and up to {sampling.max_new_tokens} more"
            found = [Failure("memory", f"out of memory with this prompt alone ({tokens})")]
        yield from zip((row.number for row in rows), found, strict=True)

    def _generate(self, batch: Sequence[Encoded], sampling: Sampling) -> Sequence[Outcome] | None:
        """Return the completions, or None if memory does not suffice."""
        padding: Any = self.model.policy.tokenizer.pad_token_id
        try:
            inputs = collate([row.inputs for row in batch], pad_token_id=padding)
            ids = [row.id for row in batch]
            seen = [picture for row in batch for picture in row.pictures]
            features = self._memory.look(seen) if self._memory is not None and seen else None
            return self.model.generate_encoded(inputs, ids, sampling=sampling, features=features)
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
        return None
