"""Answers in words: their parser, and the rewards that compare them with reference answers.

They are normalised in one way for rewards and metrics.

Source: normalisation of SQuAD v1.1 (Rajpurkar et al. 2016, evaluate-v1.1.py): lower case, no
punctuation, no articles, single spaces. In Chinese and Japanese text every character is a token,
as in the evaluations of CMRC 2018 (Cui et al. 2019) and DRCD (Shao et al. 2018). Deviations:
characters are first brought to Unicode's NFKC form (full-width letters and digits become plain),
all punctuation of Unicode is left out, where SQuAD leaves out that of ASCII, and marks that make
another answer stay: a sign and a point before digits and any mark between them (``-5``, ``.5``,
``3.5``, ``1/2``, ``10:30``), ``<``, ``>`` and ``%`` at a number, ``+`` and ``#`` behind a word and
``-`` at its end (``C++``, ``C#``, ``A-``), and a ``+`` that stands alone. Commas of thousands are
left out, and other commas between digits are spaces.
"""

import re
import string
import unicodedata
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from typing import Literal, cast

from groupwise.core import Completion, Example, RewardError, Score
from groupwise.rewards.parser import OpenParser, Parsed, Parser
from groupwise.rewards.reward import Reward, RewardKind

_ARTICLES = frozenset({"a", "an", "the"})
_SAME_SIGNS = str.maketrans({"−": "-", "–": "-", "‐": "-", "$": ""})
_THOUSANDS = re.compile(r"(?<![\d.,])\d{1,3}(?:,\d{3})+(?![\d,])")
_MARKS = re.compile(
    r"""(?P<start>(?<![^\W_])(?<!\.)(?:-\.?|\.)(?=\d))
    | (?P<comma>(?<=\d)[,、](?=\d))
    | (?P<kept>(?<=\d)(?:[^\w\s]|_)(?=\d) | (?<=[^\W_])[+#]+ | (?<!\S)\++(?!\S))
    | (?P<end>(?<=[a-z])-(?![\w-]))
    | (?P<bound>[<>]=?(?=\s*-?\.?\d))
    | (?P<share>(?<=\d)[\s\\]*%)
    | (?P<other>[^\w\s]|_)""",
    re.VERBOSE,
)
_CHARACTERS = re.compile(
    "[\u2e80-\u2fdf\u3005-\u3007\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
    "\U00020000-\U0003134f]"
)
_ASCII_PUNCTUATION = frozenset(string.punctuation)


@lru_cache(maxsize=4096)
def normalize_text(text: str) -> str:
    """Return what counts of a text; doing it twice changes nothing more.

    Parser, reward and measure ask for the same text, and an audit for it again and again.
    """
    plain = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).lower())
    plain = plain.translate(_SAME_SIGNS)
    plain = _THOUSANDS.sub(lambda match: match.group().replace(",", ""), plain)
    words = _MARKS.sub(_write_mark, plain).split()
    return " ".join(word for word in words if word not in _ARTICLES)


def _write_mark(match: re.Match[str]) -> str:
    """Return what stays of a mark; spaces keep it apart, so that the next pass sees it alike."""
    mark = match.group()
    written = {
        "start": f" {mark.replace('.', '0.')}",
        "comma": " ",
        "kept": mark,
        "end": "- ",
        "bound": mark.replace(">=", "≥").replace("<=", "≤"),
        "share": "%",
        "other": "" if _is_punctuation(mark[0]) else mark,
    }
    return written[match.lastgroup or "other"]


def split_tokens(text: str) -> list[str]:
    """Return the tokens of the normalised text: words, and Chinese characters one by one."""
    return _CHARACTERS.sub(lambda match: f" {match.group()} ", normalize_text(text)).split()


def read_references(example: Example, field: str) -> list[str]:
    """Return the texts that count as right: the list in a field, or else the label."""
    given: object = example.fields.get(field)
    if given is None:
        references = [] if example.label is None else [example.label]
    elif isinstance(given, Sequence) and not isinstance(given, str):
        references = list(cast("Sequence[object]", given))
    else:
        references = [given]
    for reference in references:
        if not isinstance(reference, str) or not has_words(reference):
            raise RewardError(
                f"example {example.id} has a reference answer that cannot be compared",
                got=repr(reference),
                expected=f"a text with words, in the label or in the list {field!r}",
            )
    return cast("list[str]", references)


def has_words(text: str) -> bool:
    """Return whether something is left to compare: a letter, a number or a symbol.

    Marks and characters that nobody sees (a zero-width space, an escape) say nothing by themselves.
    """
    return any(unicodedata.category(sign)[0] in "LNS" for sign in normalize_text(text))


def _is_punctuation(letter: str) -> bool:
    return letter in _ASCII_PUNCTUATION or unicodedata.category(letter)[0] == "P"


class TextParser(OpenParser):
    """Free text, compared as SQuAD does: case, punctuation and articles do not count."""

    kind: Literal["text"] = "text"

    def make_reward(self) -> Reward:
        """Return the reward of the same words."""
        return ExactMatch(self)

    def _read(self, text: str, example: Example | None) -> Parsed:
        del example
        if not has_words(text):
            return Parsed(None, "the answer has no words")
        return Parsed(text.strip(), prefix=text[: len(text) - len(text.lstrip())])

    def _normalize(self, target: str) -> str:
        return target.strip()


class TextReward(ABC):
    """A reward of an answer in words.

    What is no answer for the parser is invalid; an example without references cannot be scored.

    Args:
        parser: finds the answer; None: a TextParser.
        references: field with the list of right answers; without it the label is the only one.
    """

    kind: RewardKind = "truth"

    def __init__(self, parser: Parser | None = None, *, references: str = "answers") -> None:
        self.parser = parser or TextParser()
        self.references = references

    def applies_to(self, example: Example) -> bool:
        """Return whether the example has references."""
        given: object = example.fields.get(self.references)
        return example.label is not None if given is None else given != []

    def __call__(self, example: Example, completion: Completion) -> Score:
        """Return the score."""
        references = read_references(example, self.references)
        if not references:
            return Score(None, "no reference answer")
        answer = self.parser.parse(completion.text, example)
        if answer.label is None:
            return Score(0.0, answer.reason, invalid=True)
        return self._compare(answer.label, references)

    @abstractmethod
    def _compare(self, answer: str, references: Sequence[str]) -> Score:
        """Return the score of an answer against at least one reference answer."""


class ExactMatch(TextReward):
    """1 if the answer equals a reference answer after normalisation, else 0.

    Source: exact match of SQuAD v1.1.

    What is no answer for the parser is invalid; an example without references cannot be scored.

    Args:
        parser: finds the answer; None: a TextParser.
        references: field with the list of right answers; without it the label is the only one.
    """

    name = "exact_match"

    def _compare(self, answer: str, references: Sequence[str]) -> Score:
        said = normalize_text(answer)
        if said in {normalize_text(reference) for reference in references}:
            return Score(1.0, f"{said!r} is a reference answer")
        return Score(0.0, f"{said!r} is no reference answer")


_CLOSED = frozenset({"yes", "no", "noanswer"} | {"是", "是的", "否", "不", "不是", "对", "不对"})


class TokenF1(TextReward):
    """F1 of the answer's tokens against the best reference answer, in [0, 1].

    Source: F1 of SQuAD v1.1 over bags of tokens; the rule of HotpotQA (Yang et al. 2018,
    hotpot_evaluate_v1.py): where one side is ``yes``, ``no`` or ``noanswer`` and the other is not
    the same, F1 is 0. Deviations: the rule also holds for Chinese yes and no; Chinese text is
    compared as a bag of characters (as DRCD does), where CMRC 2018 takes the longest common run.

    What is no answer for the parser is invalid; an example without references cannot be scored.

    Args:
        parser: finds the answer; None: a TextParser.
        references: field with the list of right answers; without it the label is the only one.
    """

    name = "token_f1"

    def _compare(self, answer: str, references: Sequence[str]) -> Score:
        best = max(references, key=lambda reference: compute_token_f1(answer, reference))
        f1 = compute_token_f1(answer, best)
        return Score(f1, f"F1 {f1:.3f} with the reference {best!r}")


def compute_token_f1(answer: str, reference: str) -> float:
    """Return the harmonic mean of precision and recall over tokens; symmetric, in [0, 1]."""
    closed = {normalize_text(answer), normalize_text(reference)}
    if len(closed) > 1 and closed & _CLOSED:
        return 0.0
    said, right = Counter(split_tokens(answer)), Counter(split_tokens(reference))
    num_shared = (said & right).total()
    return 2 * num_shared / max(1, said.total() + right.total())
