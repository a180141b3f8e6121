"""Shares of labels are told by tokens that are one label's own, or not at all."""

import math

import pytest
from corpora import each_row

from groupwise.core import ModelError
from groupwise.inference.labels import share_labels
from groupwise.inference.model import RequestError, TokenChance
from groupwise.models.tokenizing import train_tokenizer

MAX_ERROR = 0.05


@pytest.fixture(scope="module")
def tokenizer():
    words = ("on", "off", "On", "Off", "fault", "Fault", "FAULTY")
    return train_tokenizer([" ".join(words)] * 50)


@pytest.mark.parametrize("knows_tokens", [False, True])
@each_row("labels")
def test_labels_are_told_or_refused(row, knows_tokens, tokenizer):
    labels = row["input"]["labels"]
    tokens = [TokenChance(t.encode(), math.log(p)) for t, p in row["input"]["listed"].items()]
    named = {"tokenizer": tokenizer if knows_tokens else None, "max_error": MAX_ERROR}
    if row["expected"] == "told":
        assert share_labels(tokens, labels, **named).error <= MAX_ERROR
        return
    assert row["expected"] == "untold"
    with pytest.raises(
        (RequestError, ModelError), match=r"several labels|of its own|begins a label"
    ):
        share_labels(tokens, labels, **named)
