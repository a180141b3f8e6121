"""Examples as the rows that TRL's GRPOTrainer reads; pictures are opened when they are used."""

from collections.abc import Sequence
from typing import Any

from groupwise.core import Example
from groupwise.models import build_messages, open_picture


def make_prompt_rows(examples: Sequence[Example]) -> Any:
    """Return a Dataset with ``prompt``, ``images`` (if any) and ``place`` for each example."""
    from datasets import Dataset

    has_pictures = any(example.pictures for example in examples)

    def read(batch: dict[str, list[int]]) -> dict[str, list[Any]]:
        chosen = [examples[place] for place in batch["place"]]
        columns: dict[str, list[Any]] = {
            "place": batch["place"],
            "prompt": [build_messages(example) for example in chosen],
        }
        if has_pictures:
            columns["images"] = [[open_picture(p) for p in e.pictures] for e in chosen]
        return columns

    return Dataset.from_dict({"place": list(range(len(examples)))}).with_transform(read)
