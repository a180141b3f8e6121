"""Variants of a correction: the same from the same id, a little unlike, and of the same meaning."""

import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, ImageChops

from groupwise.core import DataError
from groupwise.learning import VariantSettings, make_variants, replace_words
from groupwise.learning.variants import load_thesaurus
from groupwise.serving import Request

WORDS = sorted(load_thesaurus().others)


@pytest.fixture
def request_(tmp_path: Path) -> Request:
    """A row with a picture and words that have synonyms."""
    picture = tmp_path / "screen.png"
    noise = Image.effect_noise((120, 80), 80).convert("RGB")
    noise.save(picture)
    return Request("answer-1", {"task": "Fix the login form, 修改图片", "user": "fix"}, (picture,))


def _make(request: Request, folder: Path, **changes: object) -> list[Request]:
    folder.mkdir(exist_ok=True)
    settings = VariantSettings(**changes)  # pyright: ignore[reportArgumentType]
    return make_variants(request, worded=("task",), settings=settings, seed=1, folder=folder)


def test_there_are_as_many_as_wanted_each_another_and_the_same_again(
    request_: Request, tmp_path: Path
) -> None:
    found = _make(request_, tmp_path / "a")
    again = _make(request_, tmp_path / "b")
    assert len(found) == 10
    assert len({one.digest() for one in [*found, request_]}) == 11
    assert [one.digest() for one in found] == [one.digest() for one in again]


def test_another_answer_has_other_variants(request_: Request, tmp_path: Path) -> None:
    other = Request("answer-2", request_.row, request_.pictures)
    first, second = _make(request_, tmp_path / "a"), _make(other, tmp_path / "b")
    assert not {one.digest() for one in first} & {one.digest() for one in second}


def test_pictures_are_changed_a_little_and_keep_their_size(
    request_: Request, tmp_path: Path
) -> None:
    source = Image.open(request_.pictures[0])
    for variant in _make(request_, tmp_path / "a"):
        changed = Image.open(variant.pictures[0])
        assert changed.size == source.size
        assert ImageChops.difference(changed, source).getbbox() is not None


def test_only_columns_of_words_are_reworded(request_: Request, tmp_path: Path) -> None:
    found = _make(request_, tmp_path / "a", synonyms=1.0)
    assert {one.row["user"] for one in found} == {"fix"}
    assert all("修改图片" not in one.row["task"] for one in found)
    assert {one.row["task"].split()[0] for one in found} == {"Repair", "Mend"}


def test_a_text_without_synonyms_has_no_variants(tmp_path: Path) -> None:
    assert _make(Request("x", {"task": "zzz"}), tmp_path / "a") == []


def test_a_broken_picture_is_a_data_error(tmp_path: Path) -> None:
    path = tmp_path / "broken.png"
    path.write_bytes(b"\x89PNG no")
    with pytest.raises(DataError):
        _make(Request("x", {}, (path,)), tmp_path / "a")


@given(text=st.text(max_size=80), seed=st.integers(0, 100))
def test_with_probability_0_no_word_changes(text: str, seed: int) -> None:
    assert replace_words(text, 0.0, random.Random(seed)) == text


@given(
    parts=st.lists(st.sampled_from([*WORDS, "cat", "的", "login"]), max_size=8),
    seed=st.integers(0, 1000),
)
def test_a_word_becomes_one_of_its_set_and_others_stay(parts: list[str], seed: int) -> None:
    changed = replace_words(" | ".join(parts), 1.0, random.Random(seed)).split(" | ")
    others = load_thesaurus().others
    for before, after in zip(parts, changed if parts else [], strict=True):
        assert after in others[before] if before in others else after == before


@pytest.mark.parametrize("text", ["password", "prefix the name", "a shoemaker", "Affix"])
def test_parts_of_words_are_no_words(text: str) -> None:
    assert replace_words(text, 1.0, random.Random(0)) == text


def test_synonyms_are_mutual_and_of_one_set_only() -> None:
    others = load_thesaurus().others
    assert all(word == word.lower() and word not in others[word] for word in others)
    assert all(
        set(others[other]) | {other} == {*others[w], w} for w in others for other in others[w]
    )
    assert all(len(word) > 1 for word in others if not word.isascii())
