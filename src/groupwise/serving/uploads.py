"""The pictures of a request as files in the server's own folder, for as long as they are needed."""

import asyncio
import base64
import binascii
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Generator
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from fastapi import HTTPException
from starlette.datastructures import UploadFile

from groupwise.core import LARGE_PIXELS, DataError, open_lazily, open_picture
from groupwise.serving.bodies import Contents
from groupwise.serving.settings import ServeSettings

T = TypeVar("T")

_NUM_THREADS = 2


@dataclass(frozen=True, slots=True)
class Stored:
    """The pictures of a request, in order, and a folder of its own for more.

    Attributes:
        files: of the pictures.
        folder: that is gone with them.
        threads: in which they are decoded.
    """

    files: tuple[Path, ...]
    folder: Path
    threads: Executor

    async def run(self, work: Callable[..., T], *given: object) -> T:
        """Return what some work with the pictures gives."""
        return await asyncio.get_running_loop().run_in_executor(self.threads, work, *given)


class Uploads:
    """Stores and checks pictures, a few at a time and so many pixels, so that memory stays bounded.

    Requests with a large picture have a thread of their own, and others need not wait for them.

    Args:
        folder: takes one folder for each running request.
        settings: the limits.
    """

    def __init__(self, folder: Path, settings: ServeSettings) -> None:
        self._folder = folder
        self._settings = settings
        self._threads = ThreadPoolExecutor(_NUM_THREADS, thread_name_prefix="uploads")
        self._for_large = ThreadPoolExecutor(1, thread_name_prefix="large uploads")
        self._num_held = 0

    @asynccontextmanager
    async def store(self, contents: Contents) -> AsyncIterator[Stored]:
        """Give the pictures as files in order; they are gone afterwards."""
        if len(contents) > self._settings.max_pictures:
            text = f"{len(contents)} pictures; at most {self._settings.max_pictures} are taken"
            raise HTTPException(413, text)
        own = Path(tempfile.mkdtemp(dir=self._folder))
        try:
            paths = [own / f"{number:04d}" for number in range(1, len(contents) + 1)]
            named = enumerate(zip(contents, paths, strict=True), start=1)
            sizes = [await self.run(self._write, content, path, n) for n, (content, path) in named]
            is_large = max(sizes, default=0) > LARGE_PIXELS
            stored = Stored(tuple(paths), own, self._for_large if is_large else self._threads)
            with self._hold(sum(sizes)):
                for number, path in enumerate(paths, start=1):
                    await stored.run(_check, path, number)
                yield stored
        finally:
            await self.run(shutil.rmtree, own, True)

    async def run(self, work: Callable[..., T], *given: object) -> T:
        """Return what some work gives that must not stop other requests."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, work, *given)

    def close(self) -> None:
        """End the threads."""
        self._threads.shutdown()
        self._for_large.shutdown()

    @contextmanager
    def _hold(self, num_pixels: int) -> Generator[None]:
        """Count the pixels of a request as long as it is there; refuse too many of them."""
        limits = self._settings
        if num_pixels > limits.max_request_megapixels * 1e6:
            text = f"the pictures have {num_pixels / 1e6:.0f} megapixels together; at most "
            raise HTTPException(413, f"{text}{limits.max_request_megapixels:g} are taken")
        num_all = self._num_held + num_pixels
        if num_pixels and self._num_held and num_all > limits.max_held_megapixels * 1e6:
            text = "pictures of other requests are still being decoded"
            raise HTTPException(429, text, {"Retry-After": "1"})
        self._num_held += num_pixels
        try:
            yield
        finally:
            self._num_held -= num_pixels

    def _write(self, content: UploadFile | str, path: Path, number: int) -> int:
        """Write one picture and return its pixels; its name and type are not believed."""
        if isinstance(content, str):
            path.write_bytes(_decode(content, number))
        else:
            content.file.seek(0)
            with path.open("wb") as stream:
                shutil.copyfileobj(content.file, stream)
        if path.stat().st_size > self._settings.max_picture_bytes:
            text = f"picture {number} is larger than {self._settings.max_picture_mib:g} MiB"
            raise HTTPException(413, text)
        num_pixels = _count_pixels(path, number)
        if num_pixels > self._settings.max_megapixels * 1e6:
            text = f"picture {number} has {num_pixels / 1e6:.0f} megapixels; at most "
            raise HTTPException(413, f"{text}{self._settings.max_megapixels:g} are taken")
        return num_pixels


def _count_pixels(path: Path, number: int) -> int:
    with _refusing(number), open_lazily(path) as opened:
        return opened.width * opened.height


def _check(path: Path, number: int) -> None:
    with _refusing(number):
        open_picture(path)


@contextmanager
def _refusing(number: int) -> Generator[None]:
    try:
        yield
    except DataError as error:
        text = f"picture {number} is no whole picture that can be decoded"
        raise HTTPException(422, text) from error


def _decode(text: str, number: int) -> bytes:
    """Return the bytes of base64, alone or in a data URL."""
    head, mark, held = text.rpartition(";base64,")
    if bool(mark) != head.startswith("data:"):
        raise HTTPException(422, f"picture {number} is not base64")
    try:
        return base64.b64decode(held, validate=True)
    except (binascii.Error, ValueError) as error:
        raise HTTPException(422, f"picture {number} is not base64") from error
