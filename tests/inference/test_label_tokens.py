import pytest

from groupwise.core import ModelError
from groupwise.inference import find_label_tokens
from groupwise.models import train_tokenizer

LABELS = ("yes", "no")


@pytest.fixture(scope="module")
def tokenizer():
    words = [
        f"{lead}{word}" for word in ("yes", "Yes", "no", "No", "on", "off") for lead in ("", " ")
    ]
    return train_tokenizer([" ".join(words)] * 50 + ["通过", "不通过"] * 50)


def list_firsts(tokenizer, texts):
    return {tokenizer.encode(text, add_special_tokens=False)[0] for text in texts}


def test_every_spelling_counts_once(tokenizer):
    found = find_label_tokens(tokenizer, LABELS)
    for label, tokens in found.items():
        assert len(tokens) == len(set(tokens)) > 1
        spellings = [label, f" {label}", label.capitalize(), f" {label.capitalize()}"]
        assert list_firsts(tokenizer, spellings) <= set(tokens)


def test_first_tokens_of_both_labels_are_left_out(tokenizer):
    labels = ("on-task", "off-task")
    firsts = {label: list_firsts(tokenizer, [label.upper()]) for label in labels}
    assert firsts["on-task"] == firsts["off-task"]  # the O of ON and OFF
    found = find_label_tokens(tokenizer, labels)
    assert not set(found["on-task"]) & set(found["off-task"])
    assert all(found.values())
    for tokens in found.values():
        assert not set(tokens) & firsts["on-task"]


def test_chinese_labels_keep_apart(tokenizer):
    found = find_label_tokens(tokenizer, ("通过", "不通过"))
    assert not set(found["通过"]) & set(found["不通过"])


def test_labels_without_a_first_token_of_their_own_are_refused(tokenizer):
    with pytest.raises(ModelError, match=r"'yes' has no first token of its own.*differ"):
        find_label_tokens(tokenizer, ("yes", "yes, but"))
