"""Answers in words: their parsers, and the rewards that compare them with reference answers.

They are normalised in one way for rewards and metrics, and in another one for VQA.

Source: normalisation of SQuAD v1.1 (Rajpurkar et al. 2016, evaluate-v1.1.py): lower case, no
punctuation, no articles, single spaces. In Chinese and Japanese text every character is a token,
as in the evaluations of CMRC 2018 (Cui et al. 2019) and DRCD (Shao et al. 2018). Deviations:
characters are first brought to Unicode's NFKC form (full-width letters and digits become plain),
all punctuation of Unicode is left out, where SQuAD leaves out that of ASCII, and marks that make
another answer stay: a sign and a point before digits and any mark between them (``-5``, ``.5``,
``3.5``, ``1/2``, ``10:30``), ``<``, ``>`` and ``%`` at a number, ``+`` and ``#`` behind a word and
``-`` at its end (``C++``, ``C#``, ``A-``), and a ``+`` that stands alone. Commas of thousands are
left out, and other commas between digits are spaces.

Source of VQA accuracy: the evaluation of VQA v2.0 (Antol et al. 2015, Goyal et al. 2017;
https://github.com/GT-Vision-Lab/VQA, vqaEval.py of 2021-03-11), its normalisation exactly:
punctuation, then number words, articles and contractions. Each annotator is left out once, the
rest give min(1, matches / 3), and the mean over annotators is the accuracy. Deviations, undone by
``as_published``: where all annotators agree, the official script compares without normalising (so
``Yes.`` misses ``yes``), and answers of articles alone are all the same to it (so ``the`` is taken
for the answer ``a`` of "A or B?"); here they keep their articles. An answer without words is
invalid always.
"""

import re
import string
import unicodedata
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Literal, cast

from groupwise.core import Example, RewardError, Score
from groupwise.rewards.reward import (
    AnswerReward,
    OpenParser,
    Parsed,
    Parser,
    Reward,
    RewardKind,
    read_list,
    read_mapping,
)

_ARTICLES = frozenset({"a", "an", "the"})
_SAME_SIGNS = str.maketrans({"−": "-", "–": "-", "‐": "-", "$": ""})
_THOUSANDS = re.compile(r"(?<![\d.,])\d{1,3}(?:,\d{3})+(?![\d,])")
# Large patterns are texts: they are compiled when something is read with them.
_MARKS = r"""(?x)(?P<start>(?<![^\W_])(?<!\.)(?:-\.?|\.)(?=\d))
    | (?P<comma>(?<=\d)[,、](?=\d))
    | (?P<kept>(?<=\d)(?:[^\w\s]|_)(?=\d) | (?<=[^\W_])[+#]+ | (?<!\S)\++(?!\S))
    | (?P<end>(?<=[a-z])-(?![\w-]))
    | (?P<bound>[<>]=?(?=\s*-?\.?\d))
    | (?P<share>(?<=\d)[\s\\]*%)
    | (?P<other>[^\w\s]|_)"""
_CHARACTERS = (
    "[\u2e80-\u2fdf\u3005-\u3007\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
    "\U00020000-\U0003134f]"
)


@lru_cache(maxsize=4096)
def normalize_text(text: str) -> str:
    """Return what counts of a text; doing it twice changes nothing more."""
    plain = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).lower())
    plain = plain.translate(_SAME_SIGNS)
    plain = _THOUSANDS.sub(lambda match: match.group().replace(",", ""), plain)

    def write_mark(match: re.Match[str]) -> str:
        """Return what stays of a mark; spaces keep it apart, so that the next pass sees it so."""
        mark = match.group()
        is_punctuation = mark[0] in string.punctuation or unicodedata.category(mark[0])[0] == "P"
        written = {
            "start": f" {mark.replace('.', '0.')}",
            "comma": " ",
            "kept": mark,
            "end": "- ",
            "bound": mark.replace(">=", "≥").replace("<=", "≤"),
            "share": "%",
            "other": "" if is_punctuation else mark,
        }
        return written[match.lastgroup or "other"]

    words = re.sub(_MARKS, write_mark, plain).split()
    return " ".join(word for word in words if word not in _ARTICLES)


def split_tokens(text: str) -> list[str]:
    """Return the tokens of the normalised text: words, and Chinese characters one by one."""
    return re.sub(_CHARACTERS, lambda match: f" {match.group()} ", normalize_text(text)).split()


def has_words(text: str) -> bool:
    """Return whether something is left to compare: a letter, a number or a symbol.

    Marks and characters that nobody sees (a zero-width space, an escape) say nothing by themselves.
    """
    return any(unicodedata.category(sign)[0] in "LNS" for sign in normalize_text(text))


class TextParser(OpenParser):
    """Free text, compared as SQuAD does: case, punctuation and articles do not count."""

    kind: Literal["text"] = "text"

    def make_reward(self) -> Reward:
        return ExactMatch(self)

    def _read(self, text: str, example: Example | None) -> Parsed:
        del example
        if not has_words(text):
            return Parsed(None, "the answer has no words")
        return Parsed(text.strip(), prefix=text[: len(text) - len(text.lstrip())])

    def _normalize(self, target: str) -> str:
        return target.strip()


class TextReward(AnswerReward):
    """A reward of an answer in words.

    References are the list in the field ``answers``, or else the label. What is no answer for the
    parser is invalid; an example without references cannot be scored, and one with a reference
    without words raises a RewardError.

    Args:
        parser: finds the answer; None: a TextParser.
    """

    kind: RewardKind = "truth"
    _absent = "no reference answer"

    def __init__(self, parser: Parser | None = None) -> None:
        super().__init__(parser or TextParser())

    def applies_to(self, example: Example) -> bool:
        given: object = example.fields.get("answers")
        return example.label is not None if given is None else given != []

    def _find_problem(self, example: Example) -> str | None:
        return None if self._read_references(example) else self._absent

    def _read_references(self, example: Example) -> list[str]:
        """Return the texts that count as right: the list in the field, or else the label."""
        given: object = example.fields.get("answers")
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
                    expected="a text with words, in the label or in the list 'answers'",
                )
        return cast("list[str]", references)


class ExactMatch(TextReward):
    """1 if the answer equals a reference answer after normalisation, else 0.

    Source: exact match of SQuAD v1.1.
    """

    name = "exact_match"

    def _score(self, example: Example, label: str, answer: Parsed) -> Score:
        said = normalize_text(label)
        if said in map(normalize_text, self._read_references(example)):
            return Score(1.0, f"{said!r} is a reference answer")
        return Score(0.0, f"{said!r} is no reference answer")


_CLOSED = frozenset({"yes", "no", "noanswer"} | {"是", "是的", "否", "不", "不是", "对", "不对"})


class TokenF1(TextReward):
    """F1 of the answer's tokens against the best reference answer, in [0, 1].

    Source: F1 of SQuAD v1.1 over bags of tokens; the rule of HotpotQA (Yang et al. 2018,
    hotpot_evaluate_v1.py): where one side is ``yes``, ``no`` or ``noanswer`` and the other is not
    the same, F1 is 0. Deviations: the rule also holds for Chinese yes and no; Chinese text is
    compared as a bag of characters (as DRCD does), where CMRC 2018 takes the longest common run.
    """

    name = "token_f1"

    def _score(self, example: Example, label: str, answer: Parsed) -> Score:
        references = self._read_references(example)
        best = max(references, key=lambda reference: compute_token_f1(label, reference))
        f1 = compute_token_f1(label, best)
        return Score(f1, f"F1 {f1:.3f} with the reference {best!r}")


def compute_token_f1(answer: str, reference: str) -> float:
    """Return the harmonic mean of precision and recall over tokens; symmetric, in [0, 1]."""
    closed = {normalize_text(answer), normalize_text(reference)}
    if len(closed) > 1 and closed & _CLOSED:
        return 0.0
    said, right = Counter(split_tokens(answer)), Counter(split_tokens(reference))
    num_shared = (said & right).total()
    return 2 * num_shared / max(1, said.total() + right.total())


_PUNCTUATION = (*';/[]"{}()=+\\_-><@`,?!',)
_COMMA_IN_NUMBER = re.compile(r"\d,\d")
_STOP = re.compile(r"\.(?!\d)")
_MOST_STOPS = 32  # The official script passes re.UNICODE, which is 32, as the count.
_NUMBER_WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
_NUMBERS = {"none": "0", "ten": "10"} | {word: str(n) for n, word in enumerate(_NUMBER_WORDS)}
# Each with one of its apostrophes left out.
_CONTRACTIONS = {
    word[:at] + word[at + 1 :]: word
    for word in Path(__file__).with_name("contractions.txt").read_text(encoding="utf-8").split()
    for at, letter in enumerate(word)
    if letter == "'"
} | {"somebody'd": "somebodyd"}


class VqaParser(TextParser):
    """Free text in which an article alone is an answer, too: ``a`` of "Is it A or B?"."""

    def make_reward(self) -> Reward:
        return VqaAccuracy(self)

    def _read(self, text: str, example: Example | None) -> Parsed:
        words = _split_words(text)
        if words and _ARTICLES.issuperset(words):
            return Parsed(text.strip(), prefix=text[: len(text) - len(text.lstrip())])
        return super()._read(text, example)


class VqaAccuracy(AnswerReward):
    """Share of annotators who gave this answer, three counting as all, each left out once.

    The field ``answers`` has the annotators' answers: texts, or mappings with ``answer`` and an
    ``answer_id`` that tells the annotators apart. An empty answer is invalid; an example without
    the field cannot be scored, and one without answers of at least two different annotators raises
    a RewardError.

    Args:
        parser: finds the answer; None: a VqaParser.
        as_published: compare unanimous answers without normalising, and those of articles alone
            as equal, as the official script.
    """

    name = "vqa_accuracy"
    kind: RewardKind = "truth"
    needs = "answers"

    def __init__(self, parser: Parser | None = None, *, as_published: bool = False) -> None:
        super().__init__(parser or VqaParser())
        self.as_published = as_published

    def _find_problem(self, example: Example) -> str | None:
        self._read_annotations(example)

    def _score(self, example: Example, label: str, answer: Parsed) -> Score:
        annotated = [_normalize_space(text) for text in self._read_annotations(example)]
        said = _normalize_space(label)
        if not _split_words(said):
            return Score(0.0, "the answer has no words", invalid=True)
        if not self.as_published or len(set(annotated)) > 1:
            normalize = normalize_vqa_answer if self.as_published else _normalize_answer
            said = normalize(said)
            annotated = [normalize(text) for text in annotated]
        num_matches = annotated.count(said)
        return Score(
            compute_vqa_accuracy(num_matches, len(annotated)),
            f"{num_matches} of {len(annotated)} annotators said {said!r}",
        )

    def _read_annotations(self, example: Example) -> list[str]:
        """Return one answer per annotator."""
        answers: dict[object, str] = {}
        for place, row in enumerate(read_list(example.fields["answers"]) or ()):
            entry = read_mapping(row) or {"answer": row, "answer_id": place}
            text, annotator = entry.get("answer"), entry.get("answer_id")
            if not isinstance(text, str) or annotator is None or annotator in answers:
                raise RewardError(
                    f"example {example.id} has an annotator's answer that cannot be used",
                    got=repr(row),
                    expected="a text, or a mapping with answer and an answer_id of its own",
                )
            answers[annotator] = text
        _require_annotators(len(answers), f"example {example.id}")
        return list(answers.values())


@lru_cache(maxsize=4096)  # people's answers are compared with each of a group
def normalize_vqa_answer(text: str) -> str:
    """Return an answer as the official evaluation compares it; one of articles alone is empty."""
    kept = [word for word in _split_words(text) if word not in _ARTICLES]
    return " ".join(_CONTRACTIONS.get(word, word) for word in kept)


def compute_leave_one_out_accuracy(answers: Sequence[str]) -> float:
    """Return how well people agree: the accuracy of each annotator's answer against the others'.

    It is the mean over annotators of min(1, others who gave the same answer / 3).

    Args:
        answers: one text per annotator, compared as ``VqaAccuracy`` does.

    Raises:
        RewardError: if there are fewer than two.
    """
    _require_annotators(len(answers), "a question")
    counts = Counter(map(_normalize_answer, answers)).values()
    return sum(count * min(3, count - 1) for count in counts) / (3 * len(answers))


def compute_vqa_accuracy(num_matches: int, num_annotators: int) -> float:
    """Return the mean over annotators of min(1, matches among the others / 3).

    With ten annotators it is 0, 0.3, 0.6, 0.9 or 1.
    """
    thirds = num_matches * min(3, num_matches - 1)
    thirds += (num_annotators - num_matches) * min(3, num_matches)
    return thirds / (3 * num_annotators)


def _normalize_answer(text: str) -> str:
    """Return the answer as officially normalised, or its articles where it has nothing else."""
    return normalize_vqa_answer(text) or " ".join(_split_words(text))


def _split_words(text: str) -> list[str]:
    """Return the words, those of numbers as digits.

    A mark is removed that touches a space or where a number has a comma; another one is a space.
    """
    text = _normalize_space(text)
    has_comma = _COMMA_IN_NUMBER.search(text) is not None
    stripped = text
    for mark in _PUNCTUATION:
        is_removed = f"{mark} " in text or f" {mark}" in text or has_comma
        stripped = stripped.replace(mark, "" if is_removed else " ")
    words = _STOP.sub("", stripped, count=_MOST_STOPS).lower().split()
    return [_NUMBERS.get(word, word) for word in words]


def _normalize_space(text: str) -> str:
    return text.replace("\n", " ").replace("\t", " ").strip()


def _require_annotators(number: int, whose: str) -> None:
    if number < 2:
        raise RewardError(f"{whose} has too few annotators", got=number, expected="2 or more")
