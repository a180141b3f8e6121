"""Reward: accuracy of VQA, how many of the annotators gave this answer?

Range: [0, 1]. Source: the evaluation of VQA v2.0 (Antol et al. 2015, Goyal et al. 2017;
https://github.com/GT-Vision-Lab/VQA, vqaEval.py of 2021-03-11), its normalisation exactly:
punctuation, then number words, articles and contractions. Each annotator is left out once, the
rest give min(1, matches / 3), and the mean over annotators is the accuracy. Deviations, undone by
``as_published``: where all annotators agree, the official script compares without normalising (so
``Yes.`` misses ``yes``), and answers of articles alone are all the same to it (so ``the`` is taken
for the answer ``a`` of "A or B?"); here they keep their articles. An answer without words is
invalid always.
"""

import re
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache

from groupwise.core import Completion, Example, RewardError, Score
from groupwise.rewards.fields import read_list, read_mapping
from groupwise.rewards.parser import Parsed, Parser
from groupwise.rewards.reward import Reward, RewardKind
from groupwise.rewards.text import TextParser

_PUNCTUATION = (*';/[]"{}()=+\\_-><@`,?!',)
_COMMA_IN_NUMBER = re.compile(r"\d,\d")
_STOP = re.compile(r"\.(?!\d)")
_MOST_STOPS = 32  # The official script passes re.UNICODE, which is 32, as the count.
_ARTICLES = frozenset({"a", "an", "the"})
_NUMBER_WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
_NUMBERS = {"none": "0", "ten": "10"} | {word: str(n) for n, word in enumerate(_NUMBER_WORDS)}
_CONTRACTED = """
    ain't aren't can't could've couldn't couldn't've didn't doesn't don't hadn't hadn't've hasn't
    haven't he'd he'd've he's how'd how'll how's isn't it'd it'd've it'll ma'am mightn't
    mightn't've might've mustn't must've needn't not've o'clock oughtn't 'ow's'at shan't she'd've
    should've shouldn't shouldn't've somebody'd've somebody'll somebody's someone'd someone'd've
    someone'll someone's something'd something'd've something'll that's there'd there'd've there're
    there's they'd they'd've they'll they're they've 'twas wasn't we'd've we've weren't what'll
    what're what's what've when's where'd where's where've who'd who'd've who'll who's who've
    why'll why're why's won't would've wouldn't wouldn't've y'all y'all'll y'all'd've you'd
    you'd've you'll you're you've
"""


def _leave_out_one_apostrophe(word: str) -> list[str]:
    return [word[:at] + word[at + 1 :] for at, letter in enumerate(word) if letter == "'"]


_CONTRACTIONS = {
    wrong: right for right in _CONTRACTED.split() for wrong in _leave_out_one_apostrophe(right)
} | {"somebody'd": "somebodyd"}


class VqaParser(TextParser):
    """Free text in which an article alone is an answer, too: ``a`` of "Is it A or B?"."""

    def make_reward(self) -> Reward:
        """Return VQA accuracy of the same words."""
        return VqaAccuracy(self)

    def _read(self, text: str, example: Example | None) -> Parsed:
        words = _split_words(text)
        if words and _ARTICLES.issuperset(words):
            return Parsed(text.strip(), prefix=text[: len(text) - len(text.lstrip())])
        return super()._read(text, example)


class VqaAccuracy:
    """Share of annotators who gave this answer, three counting as all, each left out once.

    An empty answer is invalid; an example without the field cannot be scored.

    Args:
        parser: finds the answer; None: a VqaParser.
        answers: field with the annotators' answers: texts, or mappings with ``answer`` and an
            ``answer_id`` that tells the annotators apart.
        as_published: compare unanimous answers without normalising, and those of articles alone
            as equal, as the official script.
    """

    name = "vqa_accuracy"
    kind: RewardKind = "truth"

    def __init__(
        self,
        parser: Parser | None = None,
        *,
        answers: str = "answers",
        as_published: bool = False,
    ) -> None:
        self.parser = parser or VqaParser()
        self.answers = answers
        self.as_published = as_published

    def applies_to(self, example: Example) -> bool:
        """Return whether the example has annotators' answers."""
        return example.fields.get(self.answers) is not None

    def __call__(self, example: Example, completion: Completion) -> Score:
        """Return the score.

        Raises:
            RewardError: if the answers are not those of at least two different annotators.
        """
        given: object = example.fields.get(self.answers)
        if given is None:
            return Score(None, f"no field {self.answers}")
        annotated = _read_annotations(given, example)
        answer = self.parser.parse(completion.text, example)
        if answer.label is None:
            return Score(0.0, answer.reason, invalid=True)
        said = _normalize_space(answer.label)
        annotated = [_normalize_space(text) for text in annotated]
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
    words = _strip_punctuation(_normalize_space(text)).lower().split()
    return [_NUMBERS.get(word, word) for word in words]


def _normalize_space(text: str) -> str:
    return text.replace("\n", " ").replace("\t", " ").strip()


def _strip_punctuation(text: str) -> str:
    """Remove a mark that touches a space or where a number has a comma; else make it a space."""
    stripped = text
    for mark in _PUNCTUATION:
        is_removed = (
            f"{mark} " in text or f" {mark}" in text or _COMMA_IN_NUMBER.search(text) is not None
        )
        stripped = stripped.replace(mark, "" if is_removed else " ")
    return _STOP.sub("", stripped, count=_MOST_STOPS)


def _read_annotations(given: object, example: Example) -> list[str]:
    """Return one answer per annotator."""
    answers: dict[object, str] = {}
    for place, row in enumerate(read_list(given) or ()):
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


def _require_annotators(number: int, whose: str) -> None:
    if number < 2:
        raise RewardError(f"{whose} has too few annotators", got=number, expected="2 or more")
