"""Labels by their tokens: those of a tokenizer, and shares from a list of the likeliest first ones.

A label's mass is the sum over the distinct first tokens of its spellings. Tokens that start two
labels tell nothing by themselves: a model in this process is asked what it says behind them, and of
a server's list they bound the error, as what is not in it does. Nothing is guessed.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from groupwise.core import ModelError
from groupwise.inference.model import LabelShares, RequestError, TokenChance, Usage

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


def find_label_tokens(
    tokenizer: "PreTrainedTokenizerBase", labels: Sequence[str]
) -> dict[str, tuple[int, ...]]:
    """Return the distinct first token ids of each label's spellings.

    Spellings are the label as given, in lower case, in upper case and capitalised, each with
    and without a leading space. A token that starts more than one label (the ``O`` of ``ON``
    and ``OFF``) tells nothing and is left out.
    """
    found = {label: [one[0] for one in _list_tokens(tokenizer, label)] for label in labels}
    counts = Counter(token for tokens in found.values() for token in set(tokens))
    own: dict[str, tuple[int, ...]] = {}
    for label, tokens in found.items():
        own[label] = tuple(token for token in dict.fromkeys(tokens) if counts[token] == 1)
        if not own[label]:
            raise ModelError(
                f"the label {label!r} has no first token of its own",
                got=[tokenizer.decode([token]) for token in dict.fromkeys(tokens)],
                fix="choose labels that differ in their first token",
            )
    return own


@dataclass(frozen=True, slots=True)
class Spellings:
    """How labels are written in tokens, and where they part."""

    whole: Mapping[tuple[int, ...], set[str]]  # labels by the tokens of a spelling
    begun: Mapping[tuple[int, ...], set[str]]  # labels by each beginning of a spelling
    own: Mapping[str, list[int]]  # first tokens that only one label begins with, by label
    common: list[int]  # those that several do
    num_shared: int  # tokens that labels have in common, at most, before they part


def spell_labels(tokenizer: "PreTrainedTokenizerBase", labels: Sequence[str]) -> Spellings:
    """Return the tokens of all spellings of labels, without what is blank before them."""
    return _spell(tokenizer, len(tokenizer), tuple(labels))


@lru_cache(maxsize=8)  # a served row asks for those of the row before
def _spell(
    tokenizer: "PreTrainedTokenizerBase", num_tokens: int, labels: tuple[str, ...]
) -> Spellings:
    del num_tokens  # with more of them the spellings are others
    whole, begun = dict[tuple[int, ...], set[str]](), dict[tuple[int, ...], set[str]]()
    for label in labels:
        for tokens in _list_tokens(tokenizer, label):
            whole.setdefault(tuple(tokens), set()).add(label)
            for depth in range(1, len(tokens) + 1):
                begun.setdefault(tuple(tokens[:depth]), set()).add(label)
    clear = set[str]().union(*(one for one in whole.values() if len(one) == 1))
    for label in labels:
        if label not in clear:
            raise ModelError(
                f"the label {label!r} is spelled in the tokens of another",
                fix="choose labels that differ in more than their case",
            )
    firsts = {path[0]: found for path, found in begun.items() if len(path) == 1}
    return Spellings(
        whole,
        begun,
        own={label: [t for t, found in firsts.items() if found == {label}] for label in labels},
        common=[token for token, found in firsts.items() if len(found) > 1],
        num_shared=max((len(path) for path, found in begun.items() if len(found) > 1), default=0),
    )


def list_spellings(label: str) -> tuple[str, ...]:
    """Return the distinct spellings of a label that count as the label."""
    words = [label, label.lower(), label.upper(), label.capitalize()]
    return tuple(dict.fromkeys(lead + word for word in words for lead in ("", " ")))


def _list_tokens(tokenizer: "PreTrainedTokenizerBase", label: str) -> list[list[int]]:
    """Return the tokens of each spelling from the first that is not blank."""
    blank = set(tokenizer.encode(" ", add_special_tokens=False))
    spelled = [tokenizer.encode(s, add_special_tokens=False) for s in list_spellings(label)]
    return [
        tokens[start:]
        for tokens in spelled
        if (start := next((n for n, one in enumerate(tokens) if one not in blank), None))
        is not None
    ]


def share_labels(
    tokens: Sequence[TokenChance],
    labels: Sequence[str],
    *,
    tokenizer: "PreTrainedTokenizerBase | None" = None,
    max_error: float = 1.0,
    usage: Usage | None = None,
) -> LabelShares:
    """Return the labels' shares of the probability that the listed tokens give them.

    With the model's tokenizer the labels' first tokens are known; without it, a listed token is
    the first of a spelling if it begins it and no longer listed one does.

    Tokens that are not listed are no likelier than the least likely listed one, and together no
    likelier than what the list leaves of 1: that bounds the error of the shares.

    Raises:
        RequestError: ``unlisted``, if the error may be above ``max_error``, with what the request
            had cost (``usage``).
    """
    usage = usage or Usage(num_calls=1)
    fix = (
        "let the server return more top_logprobs, or ask for other labels, that begin with other "
        "tokens"
    )
    chances = {token.spelling: math.exp(min(0.0, token.log_prob)) for token in tokens}
    # Tokens of one label alone, those that it shares, and how many there can be, listed or not.
    own, shared, num_possible = dict[str, set[bytes]](), dict[str, set[bytes]](), dict[str, int]()
    if tokenizer is not None:
        for label, ids in find_label_tokens(tokenizer, labels).items():
            firsts = {one[0] for one in _list_tokens(tokenizer, label)}
            spelled = {one: str(tokenizer.decode([one])).encode() for one in firsts}
            known = {spelled[one] for one in ids}
            own[label] = {text for text in known if "\ufffd".encode() not in text}
            shared[label] = set(spelled.values()) - known
            num_possible[label] = len(ids)
    else:
        begun = dict[str, set[bytes]]()
        for label in labels:
            spellings = [s.encode() for s in list_spellings(label)]
            begun[label] = {
                t for t in chances if t.strip() and any(s.startswith(t) for s in spellings)
            }
            # Of the listed beginnings of a spelling the longest is its first token.
            beginnings = ([t for t in begun[label] if s.startswith(t)] for s in spellings)
            own[label] = {max(found, key=len) for found in beginnings if found}
            num_possible[label] = len(spellings)
        for label in labels:
            others = set[bytes]().union(*(begun[other] for other in labels if other != label))
            shared[label] = own[label] & others
            own[label] -= others
    seen = {label: math.fsum(chances[t] for t in own[label] if t in chances) for label in labels}
    total = math.fsum(seen.values())
    if total <= 0:
        what = f"none of the {len(chances)} likeliest first tokens begins a label"
        raise RequestError("unlisted", what, usage=usage, fix=fix)
    rest = max(0.0, 1.0 - math.fsum(chances.values()))
    floor = min(chances.values())
    hidden = {
        label: min(rest, floor * (num_possible[label] - sum(t in chances for t in own[label])))
        + math.fsum(chances[token] for token in shared[label] if token in chances)
        for label in labels
    }
    # How far the true share of any label can be from its listed share.
    total_hidden, errors = math.fsum(hidden.values()), [0.0]
    for label, mass in seen.items():
        most = (mass + hidden[label]) / (total + hidden[label])
        least = mass / (total + total_hidden - hidden[label])
        errors += [most - mass / total, mass / total - least]
    if max(errors) > max_error:
        what = (
            f"the listed first tokens tell the shares of the labels only within {max(errors):.3f}"
        )
        if any(shared.values()):
            what += "; some of them begin several labels"
        raise RequestError("unlisted", what, usage=usage, fix=fix)
    return LabelShares({label: seen[label] / total for label in labels}, max(errors), usage)
