"""The pictures of a request as files in the server's own folder, for as long as they are needed."""

import asyncio
import shutil
import tempfile
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path

from fastapi import HTTPException, UploadFile
from PIL import Image

from groupwise.core import DataError, open_picture
from groupwise.serving.settings import ServeSettings

_NUM_DECODERS = 2


class Uploads:
    """Stores and checks pictures, a few at a time, so that memory stays bounded.

    Args:
        folder: takes one folder for each running request.
        settings: the limits.
    """

    def __init__(self, folder: Path, settings: ServeSettings) -> None:
        self._folder = folder
        self._settings = settings
        self._threads = ThreadPoolExecutor(_NUM_DECODERS, thread_name_prefix="uploads")

    @asynccontextmanager
    async def store(self, files: Sequence[UploadFile]) -> AsyncIterator[tuple[Path, ...]]:
        """Give the pictures as files in order; they are gone afterwards.

        Raises:
            HTTPException: 413 for too many or too large ones, 422 for what is no whole picture.
        """
        if len(files) > self._settings.max_pictures:
            text = f"{len(files)} pictures; at most {self._settings.max_pictures} are taken"
            raise HTTPException(413, text)
        loop = asyncio.get_running_loop()
        own = Path(tempfile.mkdtemp(dir=self._folder))
        try:
            paths = [own / f"{number:04d}" for number in range(1, len(files) + 1)]
            for number, (file, path) in enumerate(zip(files, paths, strict=True), start=1):
                await loop.run_in_executor(self._threads, self._write, file, path, number)
            yield tuple(paths)
        finally:
            await loop.run_in_executor(self._threads, shutil.rmtree, own, True)

    def close(self) -> None:
        """End the threads."""
        self._threads.shutdown()

    def _write(self, file: UploadFile, path: Path, number: int) -> None:
        """Write one picture and see that it can be decoded; its name and type are not believed."""
        if (file.size or 0) > self._settings.max_picture_bytes:
            text = f"picture {number} is larger than {self._settings.max_picture_mib:g} MiB"
            raise HTTPException(413, text)
        file.file.seek(0)
        with path.open("wb") as stream:
            shutil.copyfileobj(file.file, stream)
        try:
            self._check_pixels(path, number)
            open_picture(path)
        except (DataError, OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
            text = f"picture {number} is no whole picture that can be decoded"
            raise HTTPException(422, text) from error

    def _check_pixels(self, path: Path, number: int) -> None:
        with Image.open(path) as opened:
            megapixels = opened.width * opened.height / 1e6
        if megapixels > self._settings.max_megapixels:
            text = f"picture {number} has {megapixels:.0f} megapixels; at most "
            raise HTTPException(413, f"{text}{self._settings.max_megapixels:g} are taken")
