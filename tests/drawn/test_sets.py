"""Drawn sets of every kind: the same seed gives the same bytes, and what is wrong is refused."""

import hashlib
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from groupwise.core import DataError
from groupwise_drawn.cabinets import CABINET_MISSIONS, write_cabinets
from groupwise_drawn.desktops.sets import write_desktops
from groupwise_drawn.dialects import read_dialects, write_dialects
from groupwise_drawn.relations import read_relations, write_relations

Write = Callable[..., Path]


def write_some_desktops(folder: Path, number: int = 3, *, seed: int = 5) -> Path:
    size = (200, 150)
    return write_desktops(folder, num_sessions=number, screens_per_session=2, seed=seed, size=size)


def write_some_cabinets(folder: Path, number: int = 3, *, seed: int = 5) -> Path:
    return write_cabinets(folder, num_groups=number, seed=seed, size=(112, 84))


def digest(folder: Path) -> dict[str, str]:
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*.jpg")
    }


every_set = pytest.mark.parametrize("write", [write_some_desktops, write_some_cabinets])


@every_set
def test_the_same_arguments_give_the_same_bytes(tmp_path: Path, write: Write) -> None:
    random.seed(7)
    state = random.getstate()
    first, second = write(tmp_path / "a"), write(tmp_path / "b")
    assert random.getstate() == state
    assert first.read_bytes() == second.read_bytes()
    write(tmp_path / "c", seed=6)
    pictures = digest(tmp_path / "a")
    assert pictures == digest(tmp_path / "b")
    assert not set(pictures.values()) & set(digest(tmp_path / "c").values())
    write(tmp_path / "a")
    assert pictures == digest(tmp_path / "a")


@every_set
def test_a_small_set_is_the_beginning_of_a_larger_one(tmp_path: Path, write: Write) -> None:
    small, large = write(tmp_path / "small", 2), write(tmp_path / "large", 5)
    assert large.read_bytes().startswith(small.read_bytes())
    assert len(digest(tmp_path / "small")) > 3
    assert digest(tmp_path / "small").items() <= digest(tmp_path / "large").items()


@every_set
def test_an_interrupted_set_has_no_index_and_can_be_finished(
    tmp_path: Path, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = write(tmp_path / "part")
    whole, pictures = index.read_bytes(), digest(tmp_path / "part")
    save, calls = Image.Image.save, iter(range(100))

    def save_some(image: Image.Image, *args: Any, **options: Any) -> None:
        if next(calls) == 2:
            raise OSError("disk full")
        save(image, *args, **options)

    with monkeypatch.context() as patch:
        patch.setattr(Image.Image, "save", save_some)
        with pytest.raises(OSError, match="disk full"):
            write(tmp_path / "part")
    assert not index.exists()
    assert write(tmp_path / "part").read_bytes() == whole
    assert digest(tmp_path / "part") == pictures


NAN = float("nan")
DESKTOPS = {"num_sessions": 1, "screens_per_session": 1}
CABINETS = {"num_groups": 1}
DIALECTS = {"sizes": {"train": 1}}
RELATIONS = {"num_pairs": {"train": 1}, "style": "flat"}


@pytest.mark.parametrize(
    ("write", "usual", "change", "named"),
    [
        (write_desktops, DESKTOPS, {"num_sessions": 0}, "num_sessions"),
        (write_desktops, DESKTOPS, {"screens_per_session": 0}, "screens_per_session"),
        (write_desktops, DESKTOPS, {"size": (159, 120)}, "size"),
        (write_desktops, DESKTOPS, {"size": (160, 119)}, "size"),
        (write_desktops, DESKTOPS, {"clutter": 1.01}, "clutter"),
        (write_desktops, DESKTOPS, {"clutter": -0.1}, "clutter"),
        (write_desktops, DESKTOPS, {"clutter": NAN}, "clutter"),
        (write_desktops, DESKTOPS, {"languages": ()}, "language"),
        (write_desktops, DESKTOPS, {"languages": ("en", "fr")}, "language"),
        (write_cabinets, CABINETS, {"num_groups": 0}, "num_groups"),
        (write_cabinets, CABINETS, {"missions": ()}, "missions"),
        (write_cabinets, CABINETS, {"missions": (CABINET_MISSIONS[0],) * 2}, "missions"),
        (write_cabinets, CABINETS, {"missions": ("磁瓦表面检查",)}, "磁瓦表面检查"),
        (write_cabinets, CABINETS, {"pass_share": -0.1}, "pass_share"),
        (write_cabinets, CABINETS, {"pass_share": 1.01}, "pass_share"),
        (write_cabinets, CABINETS, {"pass_share": NAN}, "pass_share"),
        (write_cabinets, CABINETS, {"size": (111, 84)}, "size"),
        (write_cabinets, CABINETS, {"size": (112, 83)}, "size"),
        (write_cabinets, CABINETS, {"variety": 1.01}, "variety"),
        (write_cabinets, CABINETS, {"variety": NAN}, "variety"),
        (write_dialects, DIALECTS, {"sizes": {}}, "a world needs items"),
        (write_dialects, DIALECTS, {"sizes": {"held": 1}}, "unknown split; got 'held'"),
        (write_dialects, DIALECTS, {"former_share": 1.5}, "former_share is out of range"),
        (write_dialects, DIALECTS, {"revised_share": -0.5}, "revised_share is out of range"),
        (write_relations, RELATIONS, {"num_pairs": {}}, "a set needs pairs"),
        (write_relations, RELATIONS, {"num_pairs": {"train": 0}}, "a set needs pairs"),
        (write_relations, RELATIONS, {"num_pairs": {"held": 1}}, "unknown split; got 'held'"),
        (write_relations, RELATIONS, {"style": "real"}, "unknown style; got 'real'"),
        (write_relations, RELATIONS, {"side": 63}, "drawn scenes are too small; got 63"),
    ],
)
def test_bad_arguments_are_refused_before_anything_is_written(
    tmp_path: Path, write: Write, usual: dict[str, Any], change: dict[str, Any], named: str
) -> None:
    with pytest.raises(DataError, match=named):
        write(tmp_path / "set", seed=0, **(usual | change))
    assert not (tmp_path / "set").exists()


@pytest.mark.parametrize(
    ("read", "words"),
    [
        (read_relations, "is no file of drawn scenes: 'scene'"),
        (read_dialects, "is no file of items: 'picture'"),
    ],
)
def test_a_file_of_something_else_is_refused(tmp_path: Path, read: Any, words: str) -> None:
    (tmp_path / "items.jsonl").write_text('{"id": "x"}\n', encoding="utf-8")
    with pytest.raises(DataError, match=words):
        read(tmp_path / "items.jsonl")
