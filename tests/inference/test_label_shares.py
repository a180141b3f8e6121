import math

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from groupwise.core import ModelError
from groupwise.inference import RequestError, TokenChance, find_label_tokens, share_labels
from groupwise.inference.labels import list_spellings
from groupwise.models import train_tokenizer

LABELS = ("yes", "no")


@pytest.fixture(scope="module")
def tokenizer():
    words = [
        f"{lead}{word}" for word in ("yes", "Yes", "no", "No", "on", "off") for lead in ("", " ")
    ]
    return train_tokenizer([" ".join(words)] * 50 + ["通过", "不通过"] * 50)


def listed(**chances):
    return [TokenChance(text.encode(), math.log(p)) for text, p in chances.items()]


def test_every_distinct_token_of_a_label_counts_once():
    tokens = listed(**{"yes": 0.3, " yes": 0.2, "Yes": 0.1, "no": 0.1, " NO": 0.1, "other": 0.2})
    shares = share_labels([*tokens, tokens[0]], LABELS)
    assert shares.shares == {"yes": pytest.approx(0.75), "no": pytest.approx(0.25)}


def test_tokens_of_both_labels_are_left_out():
    labels = ("on-task", "off-task")
    tokens = listed(**{"on": 0.3, "off": 0.1, "o": 0.5, "O": 0.1})
    assert share_labels(tokens, labels).shares["on-task"] == pytest.approx(0.75)
    with pytest.raises(RequestError, match="none of the 2"):
        share_labels(listed(o=0.5, O=0.4), labels)


def test_only_the_longest_beginning_of_a_spelling_is_its_first_token():
    shares = share_labels(listed(n=0.2, no=0.2, yes=0.6), LABELS)
    assert shares.shares["no"] == pytest.approx(0.25)


def test_blank_and_longer_tokens_are_no_label():
    with pytest.raises(RequestError):
        share_labels(listed(**{" ": 0.5, "none": 0.3, "yesterday": 0.2}), LABELS)


def test_half_characters_match_by_their_bytes():
    first = "不".encode()
    tokens = [TokenChance(first[:2], math.log(0.6)), TokenChance("通".encode(), math.log(0.4))]
    assert share_labels(tokens, ("通过", "不通过")).shares["不通过"] == pytest.approx(0.6)


def test_a_share_that_the_list_does_not_tell_is_refused():
    tokens = listed(yes=0.05, a=0.05, b=0.05)
    assert share_labels(tokens, LABELS).error > 0.5
    with pytest.raises(RequestError, match="within") as caught:
        share_labels(tokens, LABELS, max_error=0.05)
    assert caught.value.cause == "unlisted"
    sure = share_labels(listed(yes=0.99, a=0.0099), LABELS, max_error=0.05)
    assert sure.shares == {"yes": 1.0, "no": 0.0}
    assert 0 < sure.error <= 0.01


def test_with_the_tokenizer_only_real_first_tokens_count(tokenizer):
    known = {
        label: [tokenizer.decode([i]) for i in ids]
        for label, ids in find_label_tokens(tokenizer, LABELS).items()
    }
    begun = "YE"  # begins a spelling, and is no first token of one
    assert begun not in known["yes"]
    tokens = listed(**{known["yes"][0]: 0.3, begun: 0.3, known["no"][0]: 0.1, "x": 0.3})
    assert share_labels(tokens, LABELS).shares["yes"] > 0.8
    assert share_labels(tokens, LABELS, tokenizer=tokenizer).shares["yes"] == pytest.approx(0.75)
    with pytest.raises(ModelError, match="no first token"):
        share_labels(tokens, ("yes", "yes-man"), tokenizer=tokenizer)


@given(st.data())
def test_the_true_share_is_within_the_error(tokenizer, data):
    """Whatever the model thinks, and wherever the list ends: the bound holds."""
    ids = find_label_tokens(tokenizer, LABELS)
    vocabulary = sorted({i for own in ids.values() for i in own} | set(range(40, 60)))
    weights = data.draw(
        st.lists(st.floats(1e-6, 1.0), min_size=len(vocabulary), max_size=len(vocabulary))
    )
    chances = {i: w / sum(weights) for i, w in zip(vocabulary, weights, strict=True)}
    true = sum(chances[i] for i in ids["yes"])
    true /= true + sum(chances[i] for i in ids["no"])
    num_listed = data.draw(st.integers(1, len(chances)))
    top = sorted(chances, key=lambda i: -chances[i])[:num_listed]
    tokens = [TokenChance(tokenizer.decode([i]).encode(), math.log(chances[i])) for i in top]
    try:
        shares = share_labels(tokens, LABELS, tokenizer=tokenizer)
    except RequestError:
        assume(False)
    assert abs(shares.shares["yes"] - true) <= shares.error + 1e-9
    if num_listed == len(chances):
        assert shares.error <= 1e-9


def test_spellings_are_those_of_the_tokens():
    assert list_spellings("通过") == ("通过", " 通过")
    assert len(list_spellings("yes")) == 6
