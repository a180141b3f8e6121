"""Values of a row: as JSON, as texts, and as pictures, each decoded once to find torn files."""

import json
import math
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any, cast

from PIL import ImageOps

from groupwise.core import (
    DataError,
    Picture,
    digest_bytes,
    digest_file,
    is_below,
    open_lazily,
)
from groupwise.data.tables.sources import SourceRow
from groupwise.data.tables.templates import FillError, fill_template, is_template


class UnusableRowError(Exception):
    """Carries reason and detail from the reading of one row to the drop log."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.detail = detail


def decode_picture(path: Path) -> tuple[Picture, int, int]:
    """Return a picture file with its width and height as shown, in pixels."""
    try:
        if path.exists() and not path.is_file():
            raise UnusableRowError("unreadable picture", f"{path.name}: not a file")
        content = path.read_bytes()
    except FileNotFoundError:
        raise UnusableRowError("missing picture", path.name) from None
    except (OSError, ValueError) as error:
        raise UnusableRowError("unreadable picture", f"{path.name}: {error}") from None
    width, height, _ = _decode(content, path.name)
    return Picture(path, digest_bytes(content)), width, height


def refuse_outside(places: Iterable[tuple[str, Path]], root: Path, *, setting: str) -> None:
    """Refuse rows that name files outside a folder; what is no file is dropped with its row."""
    outside = [
        (where, path) for where, path in places if not is_below(path, root) and _is_file(path)
    ]
    if outside:
        where, path = outside[0]
        raise DataError(
            f"{len(outside)} pictures that rows name lie outside of {root}",
            got=f"{path} in {where}",
            fix=f"move them into it, or set {setting}=true if they are meant",
        )


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # a name that no file can have
        return False


def digest_picture(path: Path) -> str | None:
    """Return the digest of a file; None: a row that names it is dropped."""
    try:
        return digest_file(path) if path.is_file() else None
    except OSError:
        return None


def store_bytes(content: bytes, folder: Path) -> Picture:
    """Write a picture that a row holds into a folder, named after its digest."""
    _, _, kind = _decode(content, "bytes")
    digest = digest_bytes(content)
    path = folder / f"{digest}.{kind.lower()}"
    folder.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return Picture(path, digest)


def _decode(content: bytes, name: str) -> tuple[int, int, str]:
    """Return width and height as shown, and the kind of file."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with open_lazily(Path(name), content) as image:
                return *ImageOps.exif_transpose(image).size, image.format or "picture"
    except DataError as error:
        raise UnusableRowError("unreadable picture", str(error)) from None


def clean_value(value: Any, *, write_bytes: Callable[[bytes], Any] | None = None) -> Any:
    """Return a value of a table as JSON: NaN is null, dates are ISO 8601, bytes as told or null."""
    if isinstance(value, Mapping):
        items = cast("Mapping[object, object]", value).items()
        return {str(key): clean_value(inner, write_bytes=write_bytes) for key, inner in items}
    if isinstance(value, list | tuple):
        inners = cast("Sequence[object]", value)
        return [clean_value(inner, write_bytes=write_bytes) for inner in inners]
    if isinstance(value, bytes):
        return write_bytes(value) if write_bytes else None
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    if value is None or isinstance(value, str | int):
        return value
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def as_mapping(value: Any) -> Mapping[str, Any] | None:
    """Return a value that is a mapping, or None."""
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else None


def read_value(row: SourceRow, text: str) -> Any:
    """Return the value of the column of that name, or the text of a template."""
    if not is_template(text):
        return row.values.get(text)
    try:
        return fill_template(text, row.values, file=row.file)
    except FillError as error:
        raise UnusableRowError("template cannot be filled", str(error)) from None


def read_text(row: SourceRow, column: str) -> str | None:
    """Return a value as text without outer spaces, or None if it is missing or blank."""
    value = clean_value(read_value(row, column))
    if value is None:
        return None
    plain = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return plain.strip() or None


def require_text(row: SourceRow, column: str, reason: str) -> str:
    """Return a value as text."""
    text = read_text(row, column)
    if text is None:
        raise UnusableRowError(reason, f"no {column}")
    return text


def read_list(row: SourceRow, column: str) -> list[Any]:
    """Return a list, also one written as JSON text; a value alone is a list of one."""
    value = read_value(row, column)
    if isinstance(value, str) and value.lstrip().startswith("["):
        try:
            value = json.loads(value)
        except ValueError as error:
            raise UnusableRowError("list cannot be read", f"{column}: {error}") from None
    return cast("list[Any]", value) if isinstance(value, list) else [value]
