import io
import json
import tarfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from groupwise_recipes.on_task.bootstrap.shards import read_samples


def draw(colour: str = "navy") -> bytes:
    stream = io.BytesIO()
    Image.new("RGB", (8, 8), colour).save(stream, "JPEG")
    return stream.getvalue()


def write_shard(path: Path, members: dict[str, bytes]) -> Path:
    """Write a shard as img2dataset does: the members of a sample follow one another."""
    with tarfile.open(path, "w") as shard:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            shard.addfile(member, io.BytesIO(content))
    return path


def write_whole(path: Path, num_samples: int = 3) -> Path:
    members: dict[str, bytes] = {}
    for number in range(num_samples):
        caption = f"picture {number}"
        known = {"caption": caption, "url": "x", "key": f"{number:09}", "status": "success"}
        members |= {
            f"{number:09}.jpg": draw(),
            f"{number:09}.json": json.dumps(known).encode(),
            f"{number:09}.txt": caption.encode(),
        }
    return write_shard(path, members)


def list_problems(shard: Path) -> dict[str, str | None]:
    return {sample.key.split()[0]: sample.problem for sample in read_samples(shard)}


def test_a_whole_shard_gives_every_picture_with_its_caption(tmp_path: Path) -> None:
    found = list(read_samples(write_whole(tmp_path / "0.tar")))
    assert [(one.key, one.caption) for one in found] == [
        (f"{number:09}", f"picture {number}") for number in range(3)
    ]
    assert {(one.picture, one.problem) for one in found} == {(draw(), None)}


def test_samples_that_cannot_be_used_say_why(tmp_path: Path) -> None:
    shard = write_shard(
        tmp_path / "0.tar",
        {
            "json.png": draw(),
            "json.json": b'{"caption": "from the JSON"}',
            "silent.jpg": draw(),
            "blind.txt": b"a caption alone",
            "latin.jpg": draw(),
            "latin.txt": b"caf\xe9",
            "torn.jpg": draw(),
            "torn.json": b'{"caption": ',
            "deep.jpg": draw(),
            "deep.json": b"[" * 100_000,
            "twice.jpg": draw(),
            "twice.JPG": draw(),
            "note.md": b"not wanted",
        },
    )
    assert list_problems(shard) == {
        "json": None,
        "silent": None,
        "blind": "no picture",
        "latin": "caption cannot be read",
        "torn": "caption cannot be read",
        "deep": "caption cannot be read",
        "twice": "two members of one name",
    }
    captions = {one.key: one.caption for one in read_samples(shard)}
    assert (captions["json"], captions["silent"]) == ("from the JSON", None)


def test_a_link_in_a_shard_is_not_followed(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "0.tar", "w") as shard:
        link = tarfile.TarInfo("a.jpg")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        shard.addfile(link)
    assert list_problems(tmp_path / "0.tar") == {"a": "member is no file, or too large"}


def test_a_name_that_is_not_unicode_can_be_written(tmp_path: Path) -> None:
    shard = write_shard(tmp_path / "0.tar", {"caf\udce9.jpg": draw()})
    assert [one.key.encode() for one in read_samples(shard)] == [b"caf\\xe9"]


@pytest.mark.parametrize("content", [b"", b"no tar at all" * 100])
def test_what_is_no_shard_is_one_thing_that_cannot_be_used(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "0.tar").write_bytes(content)
    assert list_problems(tmp_path / "0.tar") == {"rest": "damaged shard"}


@given(data=st.data())
def test_a_shard_that_is_cut_anywhere_says_so(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    shard = write_whole(tmp_path_factory.mktemp("shard") / "0.tar")
    content = shard.read_bytes()
    with tarfile.open(shard) as opened:
        end = max(member.offset_data + member.size for member in opened)
    shard.write_bytes(content[: data.draw(st.integers(0, end))])
    *before, last = read_samples(shard)
    assert last.problem == "damaged shard"
    assert len(before) <= 3
    whole = [one for one in before if one.problem is None and one.caption]
    assert {one.picture for one in whole} <= {draw()}


def test_a_damaged_header_is_not_taken_for_the_end(tmp_path: Path) -> None:
    shard = write_whole(tmp_path / "0.tar")
    with tarfile.open(shard) as opened:
        place = opened.getmembers()[6].offset
    content = bytearray(shard.read_bytes())
    content[place : place + 512] = b"\xff" * 512
    shard.write_bytes(content)
    assert list_problems(shard) == {"000000000": None, "rest": "damaged shard"}
