"""What the files of a base say of its size, read without Transformers, torch or its weights."""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from groupwise.core import read_json
from groupwise.models.hub import find_snapshot
from groupwise.models.sources import find_place

_CONFIG = "config.json"
BLOCK = re.compile(
    r"^(?!.*(?:visual|vision_tower|vision_model)\.).*(?:^|\.)layers\.(\d+)\.(?:.+\.)?(\w+)\.weight$"
)
"""A weight in a language block: its block, and its layer."""
_TEXT_SECTIONS = ("text_config", "llm_config", "language_config")
EXPERTS = ("num_experts", "num_local_experts")
"""Settings of a language model whose blocks choose among experts."""


@dataclass(frozen=True)
class Outline:
    """A base that is not loaded.

    Attributes:
        config: its ``config.json``.
        shapes: of its tensors by name; empty where its weights are not in safetensors here.
    """

    config: Mapping[str, Any]
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict[str, tuple[int, ...]])

    @property
    def text(self) -> Mapping[str, Any]:
        """The section of the language model, which may be the whole configuration."""
        found = (self.config.get(name) for name in _TEXT_SECTIONS)
        return {**self.config, **next((one for one in found if isinstance(one, dict)), {})}

    @property
    def num_blocks(self) -> int | None:
        """Language blocks; None where neither the configuration nor weights say how many."""
        found = self.text.get("num_hidden_layers")
        if found is not None:
            return found
        numbers = [int(m[1]) for name in self.shapes if (m := BLOCK.search(name))]
        return 1 + max(numbers) if numbers else None

    @property
    def has_experts(self) -> bool:
        """Whether its blocks choose among experts."""
        return any(self.text.get(name) for name in EXPERTS)

    @property
    def num_parameters(self) -> int:
        """All of them; 0 where no weights are here."""
        return sum(math.prod(shape) for shape in self.shapes.values())


def find_outline(base: str | Path) -> Outline | None:
    """Return the outline of a base in a folder or the local cache, or None; no network."""
    folder = _find_folder(base)
    if folder is None or not (folder / _CONFIG).is_file():
        return None
    shapes: dict[str, tuple[int, ...]] = {}
    for path in sorted(folder.glob("model*.safetensors")):
        shapes |= _read_shapes(path)
    return Outline(read_json(folder / _CONFIG, dict), shapes)


def _find_folder(base: str | Path) -> Path | None:
    place = find_place(base)
    return Path(place) if Path(place).is_dir() else find_snapshot(str(place))


def _read_shapes(path: Path) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the tensors in a file of safetensors: its header has them."""
    with path.open("rb") as file:
        size = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(size))
    header.pop("__metadata__", None)
    return {name: tuple(one["shape"]) for name, one in header.items()}
