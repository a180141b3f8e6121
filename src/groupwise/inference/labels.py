"""Labels by their first tokens: those of a tokenizer, and shares from a list of the likeliest ones.

A label's mass is the sum over the distinct first tokens of its spellings, and tokens that start two
labels are left out. What is not in a server's list is bounded, not guessed.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from groupwise.core import ModelError
from groupwise.inference.responder import LabelShares, RequestError, TokenChance, Usage

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


def find_label_tokens(
    tokenizer: "PreTrainedTokenizerBase", labels: Sequence[str]
) -> dict[str, tuple[int, ...]]:
    """Return the distinct first token ids of each label's spellings.

    Spellings are the label as given, in lower case, in upper case and capitalised, each with
    and without a leading space. A token that starts more than one label (the ``O`` of ``ON``
    and ``OFF``) tells nothing and is left out.

    Raises:
        ModelError: if a label has no first token of its own.
    """
    found = {label: _list_first_tokens(tokenizer, label) for label in labels}
    counts = Counter(token for tokens in found.values() for token in tokens)
    own = {label: tuple(t for t in tokens if counts[t] == 1) for label, tokens in found.items()}
    for label, tokens in own.items():
        if not tokens:
            raise ModelError(
                f"the label {label!r} has no first token of its own",
                got=[tokenizer.decode([token]) for token in found[label]],
                fix="choose labels that differ in their first token",
            )
    return own


def list_spellings(label: str) -> tuple[str, ...]:
    """Return the distinct spellings of a label that count as the label."""
    words = [label, label.lower(), label.upper(), label.capitalize()]
    return tuple(dict.fromkeys(lead + word for word in words for lead in ("", " ")))


def _list_first_tokens(tokenizer: "PreTrainedTokenizerBase", label: str) -> tuple[int, ...]:
    blank = set(tokenizer.encode(" ", add_special_tokens=False))
    firsts = [
        next((i for i in tokenizer.encode(s, add_special_tokens=False) if i not in blank), None)
        for s in list_spellings(label)
    ]
    return tuple(dict.fromkeys(token for token in firsts if token is not None))


_UNKNOWN = "\ufffd".encode()


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
        RequestError: ``unlisted``, if no label has a listed token or the error may be larger than
            ``max_error``.
    """
    usage = usage or Usage(num_calls=1)
    chances = {token.spelling: math.exp(min(0.0, token.log_prob)) for token in tokens}
    own, num_possible = _find_tokens(chances, labels, tokenizer)
    seen = {label: math.fsum(chances[t] for t in own[label] if t in chances) for label in labels}
    total = math.fsum(seen.values())
    if total <= 0:
        what = f"none of the {len(chances)} likeliest first tokens begins a label"
        raise RequestError("unlisted", what, usage=usage, fix=_FIX)
    rest = max(0.0, 1.0 - math.fsum(chances.values()))
    floor = min(chances.values())
    hidden = {
        label: min(rest, floor * (num_possible[label] - sum(t in chances for t in own[label])))
        for label in labels
    }
    error = _bound_error(seen, hidden)
    if error > max_error:
        what = f"the listed first tokens tell the shares of the labels only within {error:.3f}"
        raise RequestError("unlisted", what, usage=usage, fix=_FIX)
    return LabelShares({label: seen[label] / total for label in labels}, error, usage)


_FIX = "let the server return more top_logprobs, or ask for other labels"


def _find_tokens(
    chances: Mapping[bytes, float],
    labels: Sequence[str],
    tokenizer: "PreTrainedTokenizerBase | None",
) -> tuple[dict[str, set[bytes]], dict[str, int]]:
    """Return each label's own tokens, and how many there can be, listed or not."""
    if tokenizer is not None:
        ids = find_label_tokens(tokenizer, labels)
        known = {
            label: {str(tokenizer.decode([i])).encode() for i in ids[label]} for label in labels
        }
        own = {label: {t for t in spelled if _UNKNOWN not in t} for label, spelled in known.items()}
        return own, {label: len(ids[label]) for label in labels}
    spellings = {label: [s.encode() for s in list_spellings(label)] for label in labels}
    begun = {label: _list_begun(chances, spellings[label]) for label in labels}
    own = {label: _list_longest(begun[label], spellings[label]) for label in labels}
    for label in labels:
        own[label] -= set[bytes]().union(*(begun[other] for other in labels if other != label))
    return own, {label: len(spellings[label]) for label in labels}


def _list_begun(chances: Iterable[bytes], spellings: Sequence[bytes]) -> set[bytes]:
    return {t for t in chances if t.strip() and any(s.startswith(t) for s in spellings)}


def _list_longest(begun: set[bytes], spellings: Sequence[bytes]) -> set[bytes]:
    found = [max((t for t in begun if s.startswith(t)), key=len, default=b"") for s in spellings]
    return set(found) - {b""}


def _bound_error(seen: Mapping[str, float], hidden: Mapping[str, float]) -> float:
    """Return how far the true share of any label can be from its listed share."""
    total, total_hidden = math.fsum(seen.values()), math.fsum(hidden.values())
    errors = [0.0]
    for label, mass in seen.items():
        share = mass / total
        most = (mass + hidden[label]) / (total + hidden[label])
        least = mass / (total + total_hidden - hidden[label])
        errors += [most - share, share - least]
    return max(errors)
