"""Which texts are an answer: True or False to a statement, letters to a question with choices."""

import re

from groupwise.core import Completion, Example
from groupwise.rewards import ChoiceParser, LabelMatch, LabelParser, Parsed, Parser
from groupwise_recipes.visual_reasoning.config import LABELS, TAGS, VisualData

PARSER = LabelParser(tags=TAGS, labels=LABELS)
"""Of statements."""
_CHOICES = ChoiceParser(tags=TAGS, several=True, num_options=26)


class QuestionParser:
    """Reads letters where an example has the field ``options``, texts of its choices; else labels.

    Letters are a set: ``C,A`` is ``A, C``.
    """

    labels: tuple[str, ...] = ()

    def parse(self, text: str, example: Example | None = None) -> Parsed:
        """Return what a text says; without an example, either kind of answer is one."""
        if example is not None:
            return (_CHOICES if "options" in example.fields else PARSER).parse(text, example)
        found = PARSER.parse(text)
        return _CHOICES.parse(text) if found.label is None else found

    def write(self, target: str) -> str:
        """Return the text whose answer is ``target``."""
        return (PARSER if target in LABELS else _CHOICES).write(target)

    def measure(self, example: Example, text: str) -> float | None:
        """Return 1 if an answer is right, else 0; None if it is none."""
        score = LabelMatch(self)(example, Completion(text))
        return None if score.invalid else score.value


QUESTION_PARSER = QuestionParser()


_WORD = re.compile(rf"\b(?:{'|'.join(LABELS)})\b", re.IGNORECASE)


def read_leniently(text: str) -> str | None:
    """Return the last of the words True and False in a text, whatever is around it; None: none."""
    found = _WORD.findall(text)
    return found[-1].capitalize() if found else None


def find_parser(data: VisualData) -> Parser:
    """Return the one parser of a run: labels are told only where every answer is one of them."""
    return QUESTION_PARSER if data.has_choices else PARSER
