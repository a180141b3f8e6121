"""Questions about pictures with the answers of several people, as VQA v2 and OK-VQA publish them.

Reads the official pair of files, one with questions and one with annotations; both data sets have
the same form, and name COCO's pictures. Every question, and every annotation without one, is used
or dropped with a counted reason. Prompts are few-shot: solved examples stand before what is asked.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, TypeVar

from pydantic import BaseModel, Field, ValidationError

from groupwise.core import (
    DataError,
    Example,
    Message,
    Picture,
    digest_json,
    make_example,
    read_picture,
)
from groupwise.data.examples import DropLog
from groupwise.data.rows import digest_picture
from groupwise.rewards import compute_leave_one_out_accuracy


@dataclass(frozen=True, slots=True)
class FewShotForm:
    """How a few-shot prompt is written: how a question and its answer, and where pictures stand.

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

_Number = Annotated[int, Field(ge=0)]


class _Question(BaseModel):
    question_id: _Number
    image_id: _Number
    question: str


class _Questions(BaseModel):
    data_subtype: str
    questions: list[_Question]


class _Answer(BaseModel):
    answer_id: int
    answer: str


class _Annotation(BaseModel):
    question_id: _Number
    image_id: _Number | None = None
    answers: list[_Answer]


class _Annotations(BaseModel):
    data_subtype: str
    annotations: list[_Annotation]


_EXPECTED = {
    _Questions: "questions with question_id, image_id and question",
    _Annotations: "annotations with question_id and answers",
}


@dataclass(frozen=True, slots=True)
class VqaRow:
    """One question about a picture.

    Attributes:
        question_id: number of the question, unique in its data set.
        image_id: COCO's number of the picture.
        path: the picture's file.
        question: what is asked.
        answers: of the annotators, in the order of their ids; two or more, raw.
    """

    question_id: int
    image_id: int
    path: Path
    question: str
    answers: tuple[str, ...]

    @property
    def answer(self) -> str:
        """The most frequent answer, of equally frequent ones the first; not empty."""
        return Counter(text.strip() for text in self.answers if text.strip()).most_common(1)[0][0]


@dataclass(frozen=True, slots=True)
class LoadedVqa:
    """What came out of the two files: ``num_rows == len(rows) + drops.total``.

    ``num_rows`` counts questions, and annotations that belong to none of them; ``subset`` is the
    files' part of COCO (``train2014``).
    """

    rows: tuple[VqaRow, ...]
    drops: DropLog
    num_rows: int
    subset: str


def load_vqa(questions: Path, *, annotations: Path, pictures: Path) -> LoadedVqa:
    """Load VQA v2 or OK-VQA from its official files.

    Args:
        questions: ``…OpenEnded_mscoco_<subset>_questions.json``.
        annotations: ``…mscoco_<subset>_annotations.json``.
        pictures: folder with ``COCO_<subset>_<12 digits>.jpg``, or with such a folder ``<subset>``.

    Raises:
        DataError: if a file is not of this form, the two are of different subsets, or nothing is
            left.
    """
    asked, told = _read(questions, _Questions), _read(annotations, _Annotations)
    if asked.data_subtype != told.data_subtype:
        raise DataError(
            "questions and annotations are of different subsets",
            got=f"{asked.data_subtype} in {questions}, {told.data_subtype} in {annotations}",
        )
    drops, rows = DropLog(), dict[int, VqaRow]()
    by_question = {one.question_id: one for one in told.annotations}
    for one in asked.questions:
        path = _find_picture(pictures, asked.data_subtype, one.image_id)
        annotation = by_question.get(one.question_id)
        reason = "repeated question" if one.question_id in rows else _find_reason(one, annotation)
        if reason is None and not path.is_file():
            reason = "missing picture"
        if reason is not None or annotation is None:
            drops.add(reason or "no annotation", f"{questions} question {one.question_id}")
            continue
        answers = sorted(annotation.answers, key=lambda answer: answer.answer_id)
        texts = tuple(answer.answer for answer in answers)
        rows[one.question_id] = VqaRow(one.question_id, one.image_id, path, one.question, texts)
    num_rows, unused = len(asked.questions), {one.question_id for one in asked.questions}
    for one in told.annotations:
        if one.question_id in unused:
            unused.discard(one.question_id)
        else:
            where = f"{annotations} {one.question_id}"
            drops.add("annotation without a question of its own", where)
            num_rows += 1
    if not rows:
        raise DataError(f"{questions} has no question that can be used", got=drops.counts or "none")
    return LoadedVqa(tuple(rows.values()), drops, num_rows, asked.data_subtype)


def digest_vqa_pictures(questions: Path, *, pictures: Path) -> str:
    """Return the digest of the pictures that ``load_vqa`` finds for questions.

    Raises:
        DataError: if the file of questions is not of this form.
    """
    asked = _read(questions, _Questions)
    images = sorted({one.image_id for one in asked.questions})
    paths = [_find_picture(pictures, asked.data_subtype, image) for image in images]
    return digest_json([[path.name, digest_picture(path)] for path in paths])


def _find_picture(pictures: Path, subset: str, image_id: int) -> Path:
    """Return where COCO's picture is, such as ``COCO_train2014_000000458752.jpg``."""
    inner = pictures / subset
    return (inner if inner.is_dir() else pictures) / f"COCO_{subset}_{image_id:012d}.jpg"


def make_vqa_example(row: VqaRow, *, form: FewShotForm = PUBLISHED_VQA) -> Example:
    """Return the question as an Example without demonstrations.

    Its label is the most frequent answer, its cluster the picture, and its fields are
    ``question``, ``question_id``, ``image_id`` and ``answers``, which ``VqaAccuracy`` reads.

    Raises:
        DataError: if the picture cannot be read.
    """
    fields = {
        "question": row.question,
        "question_id": row.question_id,
        "image_id": row.image_id,
        "answers": list(row.answers),
    }
    kept = {"cluster": str(row.image_id), "label": row.answer, "fields": fields}
    shown = [read_picture(row.path)]
    asked = make_example([Message("user", row.question)], pictures=shown, **kept)
    return make_example(form.write(asked, ()), **kept)


def measure_agreement(rows: Sequence[VqaRow]) -> float:
    """Return the mean leave-one-out accuracy of the annotators, in [0, 1]."""
    if not rows:
        raise DataError("there are no questions whose annotators could agree")
    return sum(compute_leave_one_out_accuracy(row.answers) for row in rows) / len(rows)


F = TypeVar("F", _Questions, _Annotations)


def _read(path: Path, form: type[F]) -> F:
    try:
        return form.model_validate_json(path.read_bytes())
    except OSError as error:
        raise DataError(f"cannot read {path} ({error.strerror})") from error
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise DataError(
            f"{path} is not VQA's file",
            got=f"{where}: {first['msg']}" if where else first["msg"],
            expected=f"data_subtype, and {_EXPECTED[form]}",
        ) from error


def _find_reason(question: _Question, annotation: _Annotation | None) -> str | None:
    """Return why a question cannot be used, or None."""
    if not question.question.strip():
        return "empty question"
    if annotation is None:
        return "no annotation"
    if annotation.image_id not in (None, question.image_id):
        return "question and annotation name different pictures"
    if len(annotation.answers) < 2:
        return "fewer than 2 answers"
    if len({answer.answer_id for answer in annotation.answers}) < len(annotation.answers):
        return "an answer id appears twice"
    if not any(answer.answer.strip() for answer in annotation.answers):
        return "all answers are empty"
    return None
