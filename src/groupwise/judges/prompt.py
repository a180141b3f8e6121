"""Prompts of judges: text files with places for fenced texts, known by the digest of their words.

A place is ``{{name}}`` and takes the question's text of that name, between fences. ``{{options}}``
takes the list of options, which is the judge's own. Verdicts in tags are read strictly or not at
all.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from groupwise.core import JudgeError, digest_json

OPTIONS = "options"
_PLACE = re.compile(r"\{\{([a-z_]+)\}\}")
_TAG = re.compile(r"[a-z][a-z_]*")


def fence(name: str, text: str, *, tags: Sequence[str] = ()) -> str:
    """Return ``text`` between two lines that it cannot contain.

    The lines carry a mark that depends on the text and does not occur in it, so a text that
    brings lines of its own does not close the fence. Tags by which the verdict is given
    (``<true_false>``) are spelled ``&lt;true_false>`` inside: a judge that quotes them does not
    spoil its own verdict, which would let an answer buy itself "no verdict".
    """
    safe = _disarm(text, tags)
    mark = _choose_mark(name, safe)
    return f"[[{name} {mark}]]\n{safe}\n[[end of {name} {mark}]]"


def _choose_mark(name: str, text: str) -> str:
    number = 0
    while (mark := digest_json([name, text, number])[:16]) in text:
        number += 1
    return mark


def _disarm(text: str, tags: Sequence[str]) -> str:
    if not tags:
        return text
    names = "|".join(re.escape(tag) for tag in tags)
    return re.sub(rf"<(?=\s*/?\s*(?:{names}))", "&lt;", text, flags=re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class JudgePrompt:
    """The words of a prompt, one user turn.

    Attributes:
        text: with its places.
        name: for people; it is not part of the digest.
    """

    text: str
    name: str = "prompt"

    @property
    def digest(self) -> str:
        """Digest of the words; line ends and white space around them do not count."""
        return digest_json(self.text.replace("\r\n", "\n").strip())

    @property
    def places(self) -> tuple[str, ...]:
        """Names of the places, each once, in order."""
        return tuple(dict.fromkeys(_PLACE.findall(self.text)))

    def render(
        self, texts: Mapping[str, str], *, tags: Sequence[str] = (), options: str | None = None
    ) -> str:
        """Return the prompt with every place filled; texts without a place are left out.

        Raises:
            JudgeError: if a place has no text.
        """
        missing = [p for p in self.places if p not in texts and p != OPTIONS]
        if missing or (options is None and OPTIONS in self.places):
            raise JudgeError(
                f"the question has no text for the prompt {self.name!r}",
                got=", ".join(texts) or "no texts",
                expected=", ".join(self.places),
            )

        def fill(match: re.Match[str]) -> str:
            name = match.group(1)
            if name == OPTIONS and options is not None:
                return options
            return fence(name, texts[name], tags=tags)

        return _PLACE.sub(fill, self.text.replace("\r\n", "\n").strip())


def load_prompt(source: str | Path, *, language: str = "en") -> JudgePrompt:
    """Return a prompt of this package by its name (``correct``), or one from a file.

    Raises:
        JudgeError: if there is no such prompt.
    """
    if isinstance(source, Path):
        try:
            return JudgePrompt(source.read_text(encoding="utf-8"), source.stem)
        except (OSError, UnicodeDecodeError) as error:
            raise JudgeError(f"cannot read the prompt {source} ({error})") from error
    known = {
        entry.name.removesuffix(".txt"): entry
        for entry in (files("groupwise.judges") / "prompts").iterdir()
        if entry.name.endswith(".txt")
    }
    name = f"{source}.{language}"
    if name not in known:
        raise JudgeError(
            "there is no such judge prompt",
            got=f"{source!r} in {language!r}",
            expected=", ".join(sorted(known)),
            fix="name one of them or give the path of a file",
        )
    return JudgePrompt(known[name].read_text(encoding="utf-8"), name)


def read_tag(text: str, tag: str, labels: Sequence[str]) -> str | None:
    """Return the label between the one pair of tags in ``text``, or None.

    None unless the text has exactly one opening and one closing tag, in this order and spelled
    exactly, and between them one label, spelled as in ``labels`` (white space around it does not
    count). Anything else that begins like the tag, in any case, is a second one.
    """
    if not _TAG.fullmatch(tag):
        raise JudgeError("this cannot be a tag", got=repr(tag), expected="a-z and underscores")
    begun = re.findall(rf"<\s*/?\s*{tag}", text, flags=re.IGNORECASE)
    found = re.search(rf"<{tag}>([^<>]*)</{tag}>", text)
    if len(begun) != 2 or found is None:
        return None
    label = found.group(1).strip()
    return label if label in labels else None
