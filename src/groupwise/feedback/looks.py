"""What a picture looks like from afar: pictures with the same look are taken for one cluster."""

from pathlib import Path

import numpy as np
from PIL import Image

from groupwise.core import open_picture

_SIDE = 4


def describe_look(path: Path) -> str:
    """Return four hexadecimal digits: which of 4 x 4 fields are lighter than their mean.

    Raises:
        DataError: if the picture cannot be opened.
    """
    grey = open_picture(path).convert("L")
    fields = np.asarray(grey.resize((_SIDE, _SIDE), Image.Resampling.BOX), dtype=float)
    bits = "".join("01"[int(one)] for one in (fields > fields.mean()).flat)
    return f"{int(bits, 2):04x}"
