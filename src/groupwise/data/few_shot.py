"""Few-shot prompts: solved examples before the one that is asked, in one user turn.

A form says how a question and its answer are written, and where pictures stand.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from groupwise.core import DataError, Example, Message, Picture


@dataclass(frozen=True, slots=True)
class FewShotForm:
    """How a few-shot prompt is written.

    Attributes:
        question: words before the answer, with ``{question}``. Pictures stand before them, or where
            they have ``{pictures}``.
        before_answer: between them and a demonstration's answer, such as a space; the example that
            is asked ends without it.
        between: words between two examples.
        system: what the system turn says; None: there is none.

    Raises:
        DataError: if ``question`` has no place for the question.
    """

    question: str
    before_answer: str = ""
    between: str = ""
    system: str | None = None

    def __post_init__(self) -> None:
        """Check the form."""
        if "{question}" not in self.question:
            raise DataError("a few-shot form has no {question}", got=repr(self.question))

    def write(self, asked: Example, demonstrations: Sequence[Example]) -> tuple[Message, ...]:
        """Return the prompt: the demonstrations with their answers, in order, then the question.

        Args:
            asked: has the field ``question``; its own prompt gives the pictures and nothing else.
            demonstrations: the same, and a label, which is their answer.

        Raises:
            DataError: if an example has no question, or a demonstration no label.
        """
        parts: list[str | Picture] = []
        for shown in demonstrations:
            if shown.label is None:
                raise DataError(f"the demonstration {shown.id} has no label")
            parts += [*self._show(shown), self.before_answer + shown.label, self.between]
        turn = Message("user", [*parts, *self._show(asked)])
        return (turn,) if self.system is None else (Message("system", self.system), turn)

    def _show(self, example: Example) -> list[str | Picture]:
        question = example.fields.get("question")
        if not isinstance(question, str):
            raise DataError(f"the example {example.id} has no field question")
        before, here, after = self.question.partition("{pictures}")
        form = [before, *example.pictures, after] if here else [*example.pictures, self.question]
        return [
            part.replace("{question}", question.strip()) if isinstance(part, str) else part
            for part in form
        ]


PUBLISHED_VQA = FewShotForm("Question:{question} Short answer:")
"""Form of OpenFlamingo's and Lever-LM's evaluations of VQA: ``Question:… Short answer:…``.

The published set-up of Qwen2.5-VL puts a system turn before it that speaks of four dialogues,
whatever the number of demonstrations; it is left out here and can be given as ``system``.
"""
