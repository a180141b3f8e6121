"""Reads the text in pictures with RapidOCR; what was read is kept by the pictures' content.

The extra ``ocr`` brings the engine with its models, for English and Chinese.
"""

import threading
from collections.abc import Mapping
from functools import cached_property
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import Any

import numpy as np

from groupwise.core import ConfigError, DataError, Picture, digest_json, open_picture
from groupwise.judges import ReplyCache

_PACKAGES = ("rapidocr", "onnxruntime")
_SETTINGS: Mapping[str, Any] = {
    "Global.log_level": "error",
    # The engine's default brings the shorter side to 736 pixels, which makes a strip many times
    # larger. Here nothing grows.
    "Det.limit_type": "max",
    "Det.limit_side_len": 2000,
    # Text on a screen is upright.
    "Global.use_cls": False,
}


def check_ocr() -> None:
    """Refuse to go on without the extra.

    Raises:
        ConfigError: if it is not installed, with the command that installs it.
    """
    missing = [name for name in _PACKAGES if find_spec(name) is None]
    if missing:
        raise ConfigError(
            f"reading text in pictures needs {' and '.join(missing)}",
            fix="pip install 'groupwise[ocr]'",
        )


def describe_ocr() -> Mapping[str, Any]:
    """Return what decides what is read in a picture: versions and settings, as JSON values."""
    return {**{name: _find_version(name) for name in _PACKAGES}, "settings": dict(_SETTINGS)}


class TextReader:
    """Reads lines of text; several threads may ask.

    Args:
        cache: keeps what was read; None: nothing is kept.
        num_threads: of the engine.

    Raises:
        ConfigError: if the extra is not installed.
    """

    def __init__(self, cache: ReplyCache | None = None, *, num_threads: int = 1) -> None:
        check_ocr()
        self._cache = cache
        self._num_threads = num_threads
        self._lock = threading.Lock()

    def read(self, picture: Picture, *, top: float = 1.0) -> tuple[str, ...]:
        """Return the lines of a picture from top to bottom; none where there is no text.

        Args:
            picture: of any size; above 2000 pixels a side it is scaled down.
            top: share of the height that is read, in (0, 1].

        Raises:
            DataError: if the picture cannot be read. Failures are not kept.
            JudgeError: if the cache cannot be used.
        """
        key = digest_json([describe_ocr(), picture.digest, top])
        kept = self._cache.get(key) if self._cache else None
        lines = kept["lines"] if kept else self._read(picture, top)
        if self._cache and not kept:
            self._cache.put(key, {"lines": lines})
        return tuple(lines)

    def _read(self, picture: Picture, top: float) -> list[str]:
        shown = open_picture(picture)
        strip = shown.crop((0, 0, shown.width, max(1, round(shown.height * top))))
        blue_first = np.ascontiguousarray(np.asarray(strip)[:, :, ::-1])
        try:
            with self._lock:  # the engine keeps settings of a call in itself
                found = self._engine(blue_first)
        except Exception as error:
            raise DataError(f"cannot read the text in {picture.path} ({error})") from error
        texts = getattr(found, "txts", None)
        # The engine only logs it where it finds lines and then cannot read them.
        if texts is None and found.boxes is not None:
            raise DataError(f"cannot read the text in {picture.path}", got="lines without text")
        return [str(text) for text in texts or ()]

    @cached_property
    def _engine(self) -> Any:
        from rapidocr import RapidOCR  # pyright: ignore[reportMissingImports]

        threads = {
            f"EngineConfig.onnxruntime.{kind}_op_num_threads": self._num_threads
            for kind in ("intra", "inter")
        }
        return RapidOCR(params={**_SETTINGS, **threads})


def _find_version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
