"""Terms in texts: whole words only, the longest first, in two languages."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupwise.core import DataError
from groupwise_recipes.on_task.vocabulary import (
    TermFinder,
    Terms,
    Vocabulary,
    fold,
    list_distractions,
    load_vocabularies,
)

LETTERS = st.text("abcxyzé019_", min_size=1, max_size=8)
CHINESE = st.text("视频", min_size=2, max_size=5)


def make_finder(*terms: str, weak: tuple[str, ...] = (), neutral: tuple[str, ...] = ()):
    vocabulary = Vocabulary(
        work={"work": Terms(names=terms)},
        distraction={},
        weak={"web": Terms(names=weak)},
        neutral=neutral,
    )
    return TermFinder((vocabulary,), "screens")


@pytest.mark.parametrize(
    ("term", "text"),
    [
        ("word", "Enter your password"),
        ("fun", "Insert Function"),
        ("fun", "fun_2"),
        ("excel", "excellent"),
        (".doc", "report.docx"),
        ("game", "gaméplay"),
        ("Google Chrome", "Google\nChrome"),
    ],
)
def test_a_part_of_a_word_is_not_found(term: str, text: str) -> None:
    assert make_finder(term).find(text) == []


@pytest.mark.parametrize(
    ("term", "text"),
    [
        ("word", "Microsoft WORD"),
        ("GIMP", "用GIMP打开图片"),
        ("Google Chrome", "GoogleChrome"),
        ("word", "ＷＯＲＤ"),
        (".ods", "sales_data.ods - LibreOffice"),
        ("C++", "Write C++ code"),
        ("视频", "打开视频网站"),
        ("straße", "STRASSE"),
    ],
)
def test_a_whole_word_is_found_however_it_is_written(term: str, text: str) -> None:
    assert make_finder(term).find(text) == ["".join(fold(term).split())]


@given(before=LETTERS, term=LETTERS, behind=LETTERS)
def test_no_term_is_found_inside_a_longer_word(before: str, term: str, behind: str) -> None:
    finder = make_finder(term)
    assert finder.find(f"{before}{term}") == []
    assert finder.find(f"{term}{behind}") == []
    assert finder.find(f"{before}{term}{behind}") == []
    text = f"{before}x {term} x{behind}"  # what stands beside the term may be the term again
    assert finder.find(text) == [fold(term)] * fold(text).split().count(fold(term))


@given(terms=st.lists(CHINESE, min_size=1, max_size=6, unique=True), text=CHINESE)
def test_of_terms_that_begin_at_one_place_the_longest_counts(terms: list[str], text: str) -> None:
    place, expected = 0, []
    while place < len(text):
        here = [term for term in terms if text.startswith(term, place)]
        expected += [max(here, key=len)] if here else []
        place += len(expected[-1]) if here else 1
    assert make_finder(*terms).find(text) == expected


@given(st.text(max_size=60))
def test_any_text_can_be_searched(text: str) -> None:
    finder = TermFinder(load_vocabularies(), "screens")
    squeezed = re.sub(r"\s+", "", fold(text))
    assert all(term in squeezed for term in finder.find(text))


def test_weak_terms_count_where_no_others_do() -> None:
    finder = make_finder("GIMP", weak=("Firefox", "Chrome"))
    both = finder.weigh("Firefox, GIMP, Chrome, GIMP")
    alone = finder.weigh("Firefox and Chrome")
    assert (both.numbers, both.are_weak) == ({"work": 1}, False)
    assert (alone.numbers, alone.are_weak) == ({"web": 2}, True)


def test_neutral_terms_tell_nothing_and_hide_what_is_in_them() -> None:
    assert make_finder("表格", neutral=("列表格式",)).weigh("列表格式").numbers == {}


@pytest.mark.parametrize("term", ["", " ", "表", "+"])
def test_terms_that_would_be_found_everywhere_are_refused(term: str) -> None:
    with pytest.raises(DataError, match="too short"):
        make_finder(term)


def test_a_term_that_tells_two_things_is_refused() -> None:
    with pytest.raises(DataError, match="'vscode'"):
        make_finder("VS Code", weak=("vscode",))


@pytest.mark.parametrize("place", ["tasks", "screens"])
def test_the_vocabularies_of_the_package_can_be_used(place) -> None:
    finder = TermFinder(load_vocabularies(), place)
    assert finder.weigh("GIMP 表格.ods").numbers.keys() >= {"image_editing"}


def test_both_languages_name_the_same_kinds_of_work_and_distractions() -> None:
    english, chinese = load_vocabularies()
    assert english.work.keys() == chinese.work.keys()
    assert english.distraction.keys() == chinese.distraction.keys()
    assert not list_distractions((english, chinese)) & english.work.keys()
