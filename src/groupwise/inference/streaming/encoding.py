"""Prompts made ready one by one in any thread, and batches put together from them."""

import copy
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from queue import Empty, SimpleQueue
from typing import Any

import torch

from groupwise.core import DataError
from groupwise.inference.streaming.pictures import open_limited
from groupwise.inference.streaming.work import Failure, WorkItem
from groupwise.models import Policy

_PER_TOKEN = ("input_ids", "attention_mask", "mm_token_type_ids", "token_type_ids")


@dataclass(frozen=True, slots=True)
class Encoded:
    """A prompt as the model's inputs, a batch of one row.

    Attributes:
        number: of the item.
        id: of its example.
        inputs: tensors by name.
    """

    number: int
    id: str
    inputs: Mapping[str, Any]

    @property
    def num_tokens(self) -> int:
        """Length of the prompt, pictures included."""
        return int(self.inputs["input_ids"].shape[-1])


class Encoder:
    """Makes prompts ready in several threads at once.

    A processor must not be used by two threads at a time, so each call takes a copy that is free;
    there are as many copies as there were calls at once.
    """

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self._free: SimpleQueue[Policy] = SimpleQueue()
        self._copying = threading.Lock()

    def encode(
        self, item: WorkItem, *, max_pixels: int | None, max_new_tokens: int
    ) -> Encoded | Failure:
        """Return the inputs of an item, or why there are none.

        Raises:
            ModelError: if the policy takes no pictures and the example has some.
        """
        policy = self._take()
        try:
            encoded = Encoded(item.number, item.example.id, _encode(policy, item, max_pixels))
        except DataError as error:
            return Failure("picture", str(error))
        except MemoryError:
            return Failure("memory", "out of memory while its pictures were decoded")
        finally:
            self._free.put(policy)
        return _check_length(encoded, policy.max_tokens, max_new_tokens) or encoded

    def _take(self) -> Policy:
        try:
            return self._free.get_nowait()
        except Empty:
            with self._copying:
                return replace(self.policy, processor=copy.deepcopy(self.policy.processor))


def collate(rows: Sequence[Mapping[str, Any]], *, pad_token_id: int) -> dict[str, Any]:
    """Return rows as one batch: token by token padded on the left, all else one after another."""
    length = max(int(row["input_ids"].shape[-1]) for row in rows)
    names = dict.fromkeys(name for row in rows for name in row)
    batch: dict[str, Any] = {}
    for name in names:
        parts = [row[name] for row in rows if name in row]
        if name in _PER_TOKEN:
            fill = pad_token_id if name == "input_ids" else 0
            parts = [_pad(part, length, fill) for part in parts]
        batch[name] = torch.cat(parts)
    return batch


def _encode(policy: Policy, item: WorkItem, max_pixels: int | None) -> Mapping[str, Any]:
    text = policy.render_prompt(item.example)
    pictures = [open_limited(picture, max_pixels) for picture in item.example.pictures]
    named = {"images": [pictures]} if pictures else {}
    try:
        return dict(policy.processor(text=[text], return_tensors="pt", **named))
    except ValueError as error:
        raise DataError(f"the pictures cannot be used ({error})") from error


def _check_length(encoded: Encoded, limit: int | None, max_new_tokens: int) -> Failure | None:
    if limit is None or encoded.num_tokens + max_new_tokens <= limit:
        return None
    return Failure(
        "too_long",
        f"the prompt has {encoded.num_tokens} tokens and the answer up to {max_new_tokens}; "
        f"the model takes {limit} together",
    )


def _pad(part: torch.Tensor, length: int, fill: int) -> torch.Tensor:
    return torch.nn.functional.pad(part, (length - part.shape[-1], 0), value=fill)
