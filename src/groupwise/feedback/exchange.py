"""Feedback as files: JSONL with everything, and Label Studio's JSON for people who label there."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from groupwise.core import DataError, read_json, read_jsonl, write_json, write_jsonl
from groupwise.feedback.items import FeedbackItem, Shown

_ITEM = TypeAdapter(FeedbackItem)
_CONTROL, _SHOWN = "label", "picture"


def write_items(path: Path, items: Iterable[FeedbackItem]) -> None:
    """Write one item per line, with ``label`` and ``is_correction`` beside what people said."""
    write_jsonl(
        path,
        (
            {**asdict(item), "label": item.label, "is_correction": item.is_correction}
            for item in items
        ),
    )


def read_items(path: Path) -> list[FeedbackItem]:
    """Return the items of a file of ``write_items``.

    Raises:
        DataError: naming the line that is no item.
    """
    items: list[FeedbackItem] = []
    for number, row in enumerate(read_jsonl(path), start=1):
        told = {name: row.get(name) for name in ("shown", "labels")}
        try:
            items.append(_ITEM.validate_python(told))
        except ValidationError as error:
            where = ".".join(map(str, error.errors()[0]["loc"]))
            raise DataError(f"row {number} of {path} is no feedback ({where})") from error
    return items


def write_label_studio(path: Path, shown: Iterable[Shown], *, address: str) -> None:
    """Write tasks that Label Studio imports, with the model's answer as a prediction.

    What people said here is left out: it would come back as another person's word.

    Args:
        path: of the file.
        shown: the answers.
        address: what stands before a picture's digest, such as ``/data/local-files/?d=feedback/``.
    """
    write_json(path, [_write_task(one, address) for one in shown])


def _write_task(shown: Shown, address: str) -> dict[str, Any]:
    pictures = [address + name for name in shown.pictures]
    data = {**shown.row, "groupwise_id": shown.id, "pictures": pictures}
    if pictures:
        data[_SHOWN] = pictures[0]
    task: dict[str, Any] = {"data": data}
    if shown.prediction is not None:
        result = [_write_choice(shown.prediction)]
        score = {} if shown.confidence is None else {"score": shown.confidence}
        task["predictions"] = [{"model_version": shown.version, "result": result, **score}]
    return task


def _write_choice(label: str) -> dict[str, Any]:
    value = {"choices": [label]}
    return {"from_name": _CONTROL, "to_name": _SHOWN, "type": "choices", "value": value}


def read_label_studio(path: Path) -> list[tuple[str, str, str]]:
    """Return answer id, annotator and label of each choice in an export of Label Studio (JSON).

    Annotations that were cancelled are left out.

    Raises:
        DataError: naming the task that has no ``groupwise_id``, or more than one choice.
    """
    found: list[tuple[str, str, str]] = []
    for number, task in enumerate(read_json(path, list), start=1):
        try:
            answer = task["data"]["groupwise_id"]
            said = [one for one in task["annotations"] if not one.get("was_cancelled")]
            found += [(answer, _read_person(one), _read_choice(one)) for one in said]
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(f"task {number} of {path} is no answer that was labelled") from error
    return found


def _read_person(annotation: Mapping[str, Any]) -> str:
    person = annotation["completed_by"]
    return str(person["email"] if isinstance(person, Mapping) else person)


def _read_choice(annotation: Mapping[str, Any]) -> str:
    [result] = [one for one in annotation["result"] if one["type"] == "choices"]
    [label] = result["value"]["choices"]
    return str(label)
