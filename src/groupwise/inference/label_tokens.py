"""First tokens of labels: every spelling of a label, each distinct token counted once."""

from collections.abc import Sequence

from transformers import PreTrainedTokenizerBase

from groupwise.core import ModelError


def find_label_tokens(
    tokenizer: PreTrainedTokenizerBase, labels: Sequence[str]
) -> dict[str, tuple[int, ...]]:
    """Return the distinct first token ids of each label's spellings.

    Spellings are the label as given, in lower case, in upper case and capitalised, each with
    and without a leading space.

    Raises:
        ModelError: if a token starts more than one label, so that it tells nothing.
    """
    found = {label: _list_first_tokens(tokenizer, label) for label in labels}
    owners: dict[int, str] = {}
    for label, tokens in found.items():
        for token in tokens:
            other = owners.setdefault(token, label)
            if other != label:
                raise ModelError(
                    f"the labels {other!r} and {label!r} start with the same token",
                    got=repr(tokenizer.decode([token])),
                    fix="choose labels that differ in their first token",
                )
    return found


def _list_first_tokens(tokenizer: PreTrainedTokenizerBase, label: str) -> tuple[int, ...]:
    words = [label, label.lower(), label.upper(), label.capitalize()]
    spellings = [lead + word for word in words for lead in ("", " ")]
    blank = set(tokenizer.encode(" ", add_special_tokens=False))
    firsts = [
        next((i for i in tokenizer.encode(s, add_special_tokens=False) if i not in blank), None)
        for s in spellings
    ]
    return tuple(dict.fromkeys(token for token in firsts if token is not None))
