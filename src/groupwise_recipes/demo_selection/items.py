"""Queries and demonstrations: Examples with one picture, a question and annotators' answers.

``groupwise_recipes.demo_selection.vqa.make_vqa_example`` makes them of OK-VQA and VQA v2.
"""

from collections.abc import Iterable

from groupwise.core import DataError, Example, Message, Picture, make_example
from groupwise_drawn.dialects import DialectItem


def make_dialect_example(item: DialectItem) -> Example:
    """Return a drawn item as ``make_vqa_example`` returns a row; its cluster is the item alone."""
    fields = {
        "question": item.question,
        "question_id": item.id,
        "image_id": item.id,
        "answers": list(item.answers),
    }
    return make_example(
        [Message("user", (item.question, item.picture))],
        cluster=item.id,
        label=item.answer,
        fields=fields,
    )


def list_contents(items: Iterable[Example]) -> list[tuple[str, Picture, str]]:
    """Return ids, pictures and questions, as ``ClipFeatures.tabulate`` takes them."""
    return [(item.id, _read_picture(item), read_question(item)) for item in items]


def read_question(item: Example) -> str:
    """Return what is asked."""
    question = item.fields.get("question")
    if not isinstance(question, str):
        raise DataError(f"item {item.id} has no field question", got=repr(question))
    return question


def _read_picture(item: Example) -> Picture:
    if len(item.pictures) != 1:
        raise DataError(f"item {item.id} needs one picture", got=len(item.pictures))
    return item.pictures[0]
