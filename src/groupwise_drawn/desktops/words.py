"""Words that appear on drawn screens, read once from ``vocabulary/screens.yaml``.

Only the words; the sentences of task descriptions live in ``tasks``.
"""

from functools import lru_cache
from pathlib import Path
from typing import Any, cast

import yaml

__all__ = ["load_vocabulary", "screen_words"]


@lru_cache(maxsize=8)
def load_vocabulary(name: str) -> dict[str, Any]:
    """The mapping in the package's ``vocabulary/<name>.yaml``."""
    source = Path(__file__).with_name("vocabulary") / f"{name}.yaml"
    return cast("dict[str, Any]", yaml.safe_load(source.read_text(encoding="utf-8")))


@lru_cache(maxsize=64)
def screen_words(kind: str) -> tuple[str, ...]:
    """All entries of one kind (``phrases``, ``names``, ``code`` ...) in file order."""
    return tuple(str(entry) for entry in load_vocabulary("screens")[kind])
