"""Of how many pieces a picture file is made: each costs time and memory, however small it is.

A limit of pixels does not bound these: a JPEG of a megabyte has room for 25,000 passes over all of
its pixels, and Pillow keeps an object for each tile of a TIFF.
"""

import re
import struct
from collections.abc import Iterator
from itertools import islice, repeat
from mmap import mmap

_NUM_FREE = 10_000
_PIECE_BYTES = 4096
_MAX_SCANS = 100
_JPEG_MARKER = re.compile(rb"\xff[^\x00\x01\xd0-\xd7\xff]")
_JPEG_END, _JPEG_SCAN = 0xD9, 0xDA
_GIF_EXTENSION = 0x21
_TIFF_OFFSETS = (273, 324)  # of strips and of tiles


def check_pieces(content: bytes | mmap) -> None:
    """Refuse a file of too many pieces, whatever is wrong with it otherwise."""
    most = _NUM_FREE + len(content) // _PIECE_BYTES
    num_pieces = num_scans = 0
    for piece in islice(_list_pieces(content), most + 1):
        num_pieces += 1
        num_scans += piece == _JPEG_SCAN
        if num_scans > _MAX_SCANS:
            raise ValueError(f"it passes over its pixels more than {_MAX_SCANS} times")
    if num_pieces > most:
        raise ValueError(f"it is made of more than {most} pieces")


def _list_pieces(content: bytes | mmap) -> Iterator[int]:
    """Give a number for each piece, of a JPEG that of its marker; a broken file ends early."""
    kinds = {b"\xff\xd8": _list_jpeg, b"\x89P": _list_png, b"GI": _list_gif}
    kinds |= {b"II": _list_tiff, b"MM": _list_tiff}
    list_pieces = kinds.get(content[:2])
    try:
        yield from list_pieces(content) if list_pieces else ()
    except (IndexError, struct.error):
        return


def _list_jpeg(content: bytes | mmap) -> Iterator[int]:
    at = 2
    while (found := _JPEG_MARKER.search(content, at)) is not None:
        marker = content[found.end() - 1]
        if marker == _JPEG_END:
            return
        yield marker
        at = found.end() + struct.unpack_from(">H", content, found.end())[0]


def _list_png(content: bytes | mmap) -> Iterator[int]:
    at = 8
    while at < len(content) and content[at + 4 : at + 8] != b"IEND":
        yield 0
        at += 12 + struct.unpack_from(">I", content, at)[0]


def _list_gif(content: bytes | mmap) -> Iterator[int]:
    """Give the blocks before the first frame."""
    flags = content[10]
    at = 13 + (3 << (flags & 7) + 1 if flags & 128 else 0)
    while content[at] == _GIF_EXTENSION:
        at += 2
        while content[at]:
            yield 0
            at += 1 + content[at]
        at += 1


def _list_tiff(content: bytes | mmap) -> Iterator[int]:
    """Give the tags of the first page, and its strips or tiles."""
    order = "<" if content[:1] == b"I" else ">"
    is_big = content[2] == 43
    start, head, tag = ("8xQ", "Q", "HHQ8x") if is_big else ("4xL", "H", "HHL4x")
    (at,) = struct.unpack_from(order + start, content)
    (num_tags,) = struct.unpack_from(order + head, content, at)
    at += struct.calcsize(order + head)
    for _ in range(num_tags):
        name, _, num_values = struct.unpack_from(order + tag, content, at)
        yield from repeat(0, num_values if name in _TIFF_OFFSETS else 1)
        at += struct.calcsize(order + tag)
