"""The pictures of a request as files in the server's own folder, for as long as they are needed."""

import asyncio
import base64
import binascii
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from fastapi import HTTPException
from starlette.datastructures import UploadFile

from groupwise.core import DataError, open_lazily, open_picture
from groupwise.serving.bodies import Contents
from groupwise.serving.settings import ServeSettings

T = TypeVar("T")

_NUM_THREADS = 2


@dataclass(frozen=True, slots=True)
class Stored:
    """The pictures of a request, in order, and a folder of its own for more."""

    files: tuple[Path, ...]
    folder: Path


class Uploads:
    """Stores and checks pictures, a few at a time, so that memory stays bounded.

    Args:
        folder: takes one folder for each running request.
        settings: the limits.
    """

    def __init__(self, folder: Path, settings: ServeSettings) -> None:
        self._folder = folder
        self._settings = settings
        self._threads = ThreadPoolExecutor(_NUM_THREADS, thread_name_prefix="uploads")

    @asynccontextmanager
    async def store(self, contents: Contents) -> AsyncIterator[Stored]:
        """Give the pictures as files in order; they are gone afterwards.

        Raises:
            HTTPException: 413 for too many or too large ones, 422 for what is no whole picture.
        """
        if len(contents) > self._settings.max_pictures:
            text = f"{len(contents)} pictures; at most {self._settings.max_pictures} are taken"
            raise HTTPException(413, text)
        own = Path(tempfile.mkdtemp(dir=self._folder))
        try:
            paths = [own / f"{number:04d}" for number in range(1, len(contents) + 1)]
            for number, (content, path) in enumerate(zip(contents, paths, strict=True), start=1):
                await self.run(self._write, content, path, number)
            yield Stored(tuple(paths), own)
        finally:
            await self.run(shutil.rmtree, own, True)

    async def run(self, work: Callable[..., T], *given: object) -> T:
        """Return what some work gives that must not stop other requests."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, work, *given)

    def close(self) -> None:
        """End the threads."""
        self._threads.shutdown()

    def _write(self, content: UploadFile | str, path: Path, number: int) -> None:
        """Write one picture and see that it can be decoded; its name and type are not believed."""
        if isinstance(content, str):
            path.write_bytes(_decode(content, number))
        else:
            content.file.seek(0)
            with path.open("wb") as stream:
                shutil.copyfileobj(content.file, stream)
        if path.stat().st_size > self._settings.max_picture_bytes:
            text = f"picture {number} is larger than {self._settings.max_picture_mib:g} MiB"
            raise HTTPException(413, text)
        try:
            self._check_pixels(path, number)
            open_picture(path)
        except DataError as error:
            text = f"picture {number} is no whole picture that can be decoded"
            raise HTTPException(422, text) from error

    def _check_pixels(self, path: Path, number: int) -> None:
        with open_lazily(path) as opened:
            megapixels = opened.width * opened.height / 1e6
        if megapixels > self._settings.max_megapixels:
            text = f"picture {number} has {megapixels:.0f} megapixels; at most "
            raise HTTPException(413, f"{text}{self._settings.max_megapixels:g} are taken")


def _decode(text: str, number: int) -> bytes:
    """Return the bytes of base64, alone or in a data URL."""
    head, mark, held = text.rpartition(";base64,")
    if bool(mark) != head.startswith("data:"):
        raise HTTPException(422, f"picture {number} is not base64")
    try:
        return base64.b64decode(held, validate=True)
    except (binascii.Error, ValueError) as error:
        raise HTTPException(422, f"picture {number} is not base64") from error
