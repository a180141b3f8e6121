"""Perceptual hashes of pictures: near copies have hashes that differ in few bits.

The hash sees coarse shapes only: two different screens with one wallpaper may look alike to it,
so a near duplicate is a hint.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps

from groupwise.core import DataError, convert_picture

_SIDE = 8
_BLOCK = 256
_BITS_SET: NDArray[np.uint8] = np.array([bin(n).count("1") for n in range(2**16)], dtype=np.uint8)


@dataclass(frozen=True, slots=True)
class NearDuplicate:
    """A hash and its nearest other hash: their places and the number of differing bits."""

    index: int
    other: int
    distance: int


def hash_picture(path: Path) -> int:
    """Return the 64-bit difference hash of a picture, upright and in grey.

    Bit by bit, row by row: is a cell of the 9 x 8 reduced picture brighter than its right
    neighbour?

    Source: N. Krawetz, "Kind of Like That" (2013), dHash.

    Raises:
        DataError: if the picture cannot be read.
    """
    try:
        with Image.open(path) as image:
            grey = convert_picture(ImageOps.exif_transpose(image)).convert("L")
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise DataError(f"cannot decode the picture {path} ({error})") from error
    cells = np.asarray(grey.resize((_SIDE + 1, _SIDE), Image.Resampling.BOX), dtype=np.int16)
    bits = (cells[:, :-1] > cells[:, 1:]).reshape(-1)
    return int.from_bytes(np.packbits(bits).tobytes(), "big")


def find_near_duplicates(
    hashes: Sequence[int], others: Sequence[int], *, max_distance: int = 2
) -> list[NearDuplicate]:
    """Return, for each hash that has one within ``max_distance`` bits, its nearest other hash.

    Of equally near ones the first counts. The result is in the order of ``hashes``.
    """
    if not hashes or not others:
        return []
    rows = np.array(hashes, dtype=np.uint64)
    columns = np.array(others, dtype=np.uint64)
    found: list[NearDuplicate] = []
    for start in range(0, len(rows), _BLOCK):
        distances = _count_differing_bits(rows[start : start + _BLOCK], columns)
        nearest = distances.argmin(axis=1)
        for offset, other in enumerate(nearest.tolist()):
            distance = int(distances[offset, other])
            if distance <= max_distance:
                found.append(NearDuplicate(start + offset, other, distance))
    return found


def _count_differing_bits(
    rows: NDArray[np.uint64], columns: NDArray[np.uint64]
) -> NDArray[np.uint8]:
    """Return the distances in bits, shape (rows, columns), of two uint64 vectors."""
    differing = rows[:, None] ^ columns[None, :]
    parts = differing.view(np.uint16).reshape(*differing.shape, 4)
    return _BITS_SET[parts].sum(axis=2, dtype=np.uint8)
