"""Examples as the rows that TRL's GRPOTrainer reads; pictures are opened when they are used.

The prompts of all epochs are laid out in one fixed order that follows from the seed: TRL's own
shuffling starts from the first permutation again when training is continued.
"""

import random
from collections.abc import Sequence
from typing import Any

from groupwise.core import Example, derive_seed, open_picture
from groupwise.models import build_messages


def lay_out_prompts(
    num_prompts: int, *, num_epochs: int, prompts_per_round: int, seed: int
) -> list[tuple[int, int]]:
    """Return (epoch, place) of each prompt of every epoch in order.

    Each epoch is shuffled by its own seed; what does not fill a round is left out at its end.
    """
    layout: list[tuple[int, int]] = []
    for epoch in range(num_epochs):
        places = list(range(num_prompts))
        random.Random(derive_seed(seed, "prompts", epoch)).shuffle(places)
        places = places[: num_prompts - num_prompts % prompts_per_round]
        layout += [(epoch, place) for place in places]
    return layout


def make_prompt_rows(
    examples: Sequence[Example], layout: Sequence[tuple[int, int]], *, seed: int
) -> Any:
    """Return a Dataset with the prompts of (epoch, place) pairs, in order.

    Its columns are ``place``, ``sampling_seed``, ``prompt`` and ``images`` (if any). Rows of one
    place that are read together, a group, hold the same opened pictures. What is sampled for a
    prompt follows from ``seed``, its place and its epoch: not from the rows around it.
    """
    from datasets import Dataset

    has_pictures = any(example.pictures for example in examples)

    def read(batch: dict[str, list[int]]) -> dict[str, list[Any]]:
        chosen = [examples[place] for place in batch["place"]]
        columns: dict[str, list[Any]] = {
            **batch,
            "prompt": [build_messages(example) for example in chosen],
        }
        if has_pictures:
            opened = {
                place: [open_picture(picture) for picture in examples[place].pictures]
                for place in set(batch["place"])
            }
            columns["images"] = [opened[place] for place in batch["place"]]
        return columns

    columns = {
        "place": [place for _, place in layout],
        "sampling_seed": [derive_seed(seed, "completions", place, n) for n, place in layout],
    }
    return Dataset.from_dict(columns).with_transform(read)
