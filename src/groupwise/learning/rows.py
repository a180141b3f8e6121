"""What people said, as examples that a policy is trained on and asked about."""

import shutil
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from groupwise.core import DataError, Example, Picture, make_example
from groupwise.data.examples import DropLog
from groupwise.feedback import FeedbackItem
from groupwise.feedback.sides import Side, Sides, name_session
from groupwise.run.predict import FinishedRun, open_run
from groupwise.serving import Request

ORIGIN = "answer"
"""Field of an example: the id of the served answer that it was made from."""
LEARNED = "learned.jsonl"
"""File of a round with what it learned of what people said."""
Vary = Callable[[Request], Sequence[Request]]


@cache
def open_origin(run: Path) -> FinishedRun:
    """Return the run that a loop began with; what people say of answers is asked as its rows."""
    origin = open_run(run)
    origin.task.check_tools(origin.config, origin.folder)
    return origin


@dataclass(frozen=True, slots=True)
class SaidRows:
    """Examples, and what people said that became none.

    Attributes:
        examples: of items, each followed by its variants.
        used: the items behind them.
        drops: items that are not used.
    """

    examples: list[Example]
    used: list[FeedbackItem]
    drops: DropLog


class _UnusableError(Exception):
    """Why an item is not used: a fixed reason, and details."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowMaker:
    """Makes examples of items.

    Attributes:
        run: whose task and prompt they are.
        pictures: folder of the items' pictures, by their digests.
        folder: takes the pictures as they are asked about.
        sides: of the loop.
        side: that is read: items of the other are dropped.
        vary: returns variants of a row.
    """

    run: FinishedRun
    pictures: Path
    folder: Path
    sides: Sides
    side: Side
    vary: Vary = lambda _: ()

    def make(self, items: Iterable[FeedbackItem]) -> SaidRows:
        """Return what a policy is asked for each item, with the label that people agree on."""
        rows, known = SaidRows([], [], DropLog()), set[str]()
        for item in items:
            try:
                found = {one.id: one for one in self._ask(item) if one.id not in known}
                if not found:
                    raise _UnusableError("repeats another answer", "")
            except _UnusableError as error:
                reason, detail = error.args
                rows.drops.add(reason, f"answer {item.shown.id} {detail}".rstrip())
                continue
            known.update(found)
            rows.examples.extend(found.values())
            rows.used.append(item)
        return rows

    def _ask(self, item: FeedbackItem) -> list[Example]:
        task, config, shown = self.run.task, self.run.config, item.shown
        labels = task.parser(config).labels
        if self.sides.find(name_session(shown)) != self.side:
            raise _UnusableError("its session is of the other side", "")
        if item.label is None:
            raise _UnusableError("people disagree", "")
        if labels and item.label not in labels:
            raise _UnusableError("a label that there is not", f"({item.label[:80]})")
        files = tuple(self.pictures / name for name in shown.pictures)
        gone = [path.name for path in files if not path.is_file()]
        if gone:
            raise _UnusableError("its picture was deleted", f"({gone[0]})")
        request = Request(shown.id, shown.row, files)
        try:
            asked = [
                task.make_question(config, one, self.folder)
                for one in (request, *self.vary(request))
            ]
        except DataError as error:
            raise _UnusableError("it cannot be asked", f"({error})") from error
        return [_label(example, item) for example in asked]


def copy_pictures(examples: Sequence[Example], folder: Path) -> list[Example]:
    """Return examples whose pictures are copies in a folder, so that a run has its own."""

    def copy(picture: Picture) -> Picture:
        target = folder / f"{picture.digest}{picture.path.suffix}"
        if not target.exists():
            folder.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(picture.path, target)
        return Picture(target, picture.digest)

    return [
        example.with_pictures([copy(picture) for picture in example.pictures])
        if example.pictures
        else example
        for example in examples
    ]


def _label(example: Example, item: FeedbackItem) -> Example:
    """Return an example with its label, in its session, and the answer that it was made from."""
    fields: dict[str, Any] = {**example.fields, ORIGIN: item.shown.id}
    return make_example(
        example.prompt, cluster=name_session(item.shown), label=item.label, fields=fields
    )
