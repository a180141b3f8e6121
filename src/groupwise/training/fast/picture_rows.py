"""Pictures of rows, as processors of different families lay them out, and picking rows out of them.

A picture is a stretch of patches (Qwen-VL), an entry (LLaVA, Gemma 3) or some tiles (InternVL); or
a row has one entry with all of its pictures (SmolVLM, Idefics3). What belongs to a row is told by
the names of the fields alone, as in TRL, so no family is named here.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import torch

from groupwise.core import TrainingError
from groupwise.models import PICTURE_FIELDS


@dataclass(frozen=True)
class Pictures:
    """Pictures of rows; what belongs to a row is copied only when it is asked for.

    Attributes:
        fields: of all rows, by name, each of shape [entries, ...].
        sizes: entries of each row in each field.
        num_images: pictures of each row.
        rows: which of the rows are meant, shape [chosen]; None: all.
    """

    fields: Mapping[str, torch.Tensor]
    sizes: Mapping[str, Sequence[int]]
    num_images: Sequence[int]
    rows: torch.Tensor | None = None

    @classmethod
    def of(
        cls,
        named: Mapping[str, Any],
        num_images: Sequence[int],
        num_tiles: Sequence[int] | None = None,
    ) -> Self | None:
        """Return the pictures among named values, or None if they are not those of the rows.

        Args:
            named: values by name, of which ``PICTURE_FIELDS`` are taken.
            num_images: pictures of each row.
            num_tiles: entries of each row where a picture has several.
        """
        fields = {name: named[name] for name in PICTURE_FIELDS if named.get(name) is not None}
        sizes = {name: list(num_tiles or num_images) for name in fields}
        if "image_grid_thw" in fields:
            grids = fields["image_grid_thw"].split(sizes["image_grid_thw"])
            sizes["pixel_values"] = [int(grid.prod(-1).sum()) for grid in grids]
        elif "pixel_attention_mask" in fields:
            sizes = {name: [1] * len(num_images) for name in fields}
        is_whole = all(sum(sizes[name]) == len(values) for name, values in fields.items())
        return cls(fields, sizes, num_images) if is_whole else None

    def take(self, rows: torch.Tensor) -> Self:
        """Mean some of these rows only, shape [chosen]."""
        return replace(self, rows=rows if self.rows is None else self.rows[rows])

    def count(self) -> list[int]:
        """Return the number of pictures of each row that is meant."""
        return self._pick(self.num_images)

    def count_features(self) -> list[int]:
        """Return how many of the vision tower's outputs belong to each row that is meant."""
        name = "image_grid_thw" if "image_grid_thw" in self.fields else "pixel_values"
        return self._pick(self.sizes[name])

    def count_tiles(self) -> list[int] | None:
        """Return the entries of each row that is meant where a picture has several, as TRL does."""
        has_tiles = set(self.fields) == {"pixel_values"} and self.sizes["pixel_values"] != list(
            self.num_images
        )
        return self._pick(self.sizes["pixel_values"]) if has_tiles else None

    def copy(self, name: str) -> torch.Tensor:
        """Return a field of the rows that are meant, in order."""
        if self.rows is None:
            return self.fields[name]
        parts = self.fields[name].split(list(self.sizes[name]))
        return torch.cat([parts[row] for row in self.rows.tolist()])

    def copy_fields(self) -> dict[str, torch.Tensor]:
        """Return what a model is given of the rows that are meant."""
        return {name: self.copy(name) for name in self.fields}

    def _pick(self, counts: Sequence[int]) -> list[int]:
        return list(counts) if self.rows is None else [counts[row] for row in self.rows.tolist()]


def find_pictures(
    fields: Mapping[str, torch.Tensor], num_images: Sequence[int], num_places: Sequence[int]
) -> Pictures:
    """Return what a processor made of the pictures of some prompts.

    Args:
        fields: what it made, by name.
        num_images: pictures of each prompt.
        num_places: tokens of each prompt that stand for a part of a picture.

    Raises:
        TrainingError: if it is not known which entries belong to which prompt.
    """
    pictures = Pictures.of(fields, num_images)
    if pictures is None and sum(num_places):
        # Every tile becomes as many tokens as any other.
        num_tiles = len(fields["pixel_values"])
        tiles = [count * num_tiles // sum(num_places) for count in num_places]
        pictures = Pictures.of(fields, num_images, tiles)
    if pictures is None:
        raise TrainingError(
            "pictures of prompts are laid out in a way that is not known",
            got=", ".join(f"{name} {list(values.shape)}" for name, values in fields.items()),
            fix="set speed.prefill_once to off",
        )
    return pictures
