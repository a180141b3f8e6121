"""Thousands of labels are read like a few: no pattern is made for each."""

import pytest

from groupwise.rewards import LabelParser
from groupwise.rewards import labels as module

MANY = LabelParser(labels=tuple(f"item {number:04d}" for number in range(5000)))


@pytest.fixture
def patterns(monkeypatch):
    """Count the patterns that are compiled while a test runs."""
    compiled, real = [], module.re.compile

    def note(*given):
        compiled.append(given)
        return real(*given)

    monkeypatch.setattr(module.re, "compile", note)
    module._compile_answer.cache_clear()
    return compiled


def test_answers_are_read_without_a_pattern_for_each_label(patterns):
    for number in range(0, 5000, 50):
        assert MANY.parse(f"**Item-{number:04d}**.").label == f"item {number:04d}"
        assert MANY.write(f"item {number:04d}") == f"item {number:04d}"
    assert MANY.parse("item 5000").label is None
    assert len(patterns) == 2


def test_what_stands_around_labels_is_explained(patterns):
    found = MANY.parse("It is item 0007 or item 4999")
    assert found.reason == "more than one label: item 0007, item 4999"
    assert MANY.parse("item 0007 it is").reason == "other text around the label item 0007"
    assert MANY.parse("item 77").reason == "no label"


@pytest.mark.parametrize(
    ("labels", "text", "label"),
    [
        (("k", "x"), "\u212a", None),  # the Kelvin sign
        (("ß", "ss"), "SS", "ss"),
        (("ß", "x"), "SS", None),
        (("ı", "x"), "I", "ı"),
        (("i", "x"), "ı", None),
        (("-g", "x"), "– g", "-g"),
        (("a!b", "x"), "“a!b”!", "a!b"),
    ],
)
def test_spellings_that_look_alike_are_told_apart(labels, text, label):
    assert LabelParser(labels=labels).parse(text).label == label
