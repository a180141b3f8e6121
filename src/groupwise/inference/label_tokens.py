"""First tokens of labels: every spelling of a label, each distinct token counted once."""

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from groupwise.core import ModelError

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
