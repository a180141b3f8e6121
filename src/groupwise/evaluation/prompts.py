"""What was asked, for the readers of a report: ``evaluate/prompts.json``."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import TypeAdapter

from groupwise.core import Example, write_json
from groupwise.evaluation.records import exact, read_as
from groupwise.evaluation.report.phrases import shorten


@exact
@dataclass(frozen=True, slots=True)
class Prompts:
    """What was asked.

    Attributes:
        item: the id of the item that ``shown`` is of.
        shown: its prompt as the model sees it, cut; empty where that is not known.
        pictures: the names of its pictures.
        turns: the text of the last turn of each item's prompt, cut, by the item's id.
    """

    item: str = ""
    shown: str = ""
    pictures: tuple[str, ...] = ()
    turns: Mapping[str, str] = field(default_factory=dict[str, str])


MAX_TEXT = 400
"""Characters that are shown of a prompt's last turn, or of an answer as it was given."""
_MAX_SHOWN = 6_000
_PARSER = TypeAdapter(Prompts)


def collect_prompts(
    examples: Sequence[Example], render: Callable[[Example], str] = lambda _: ""
) -> Prompts:
    """Return what is asked of examples.

    Args:
        examples: the first of them is shown whole.
        render: returns its prompt as the model sees it; empty where that is not known.
    """
    first = examples[0]
    return Prompts(
        item=first.id,
        shown=shorten(render(first), _MAX_SHOWN),
        pictures=tuple(picture.path.name for picture in first.pictures),
        turns={one.id: shorten(one.prompt[-1].text, MAX_TEXT) for one in examples},
    )


def write_prompts(path: Path, prompts: Prompts) -> None:
    """Replace ``path``."""
    write_json(path, _PARSER.dump_python(prompts, mode="json"))


def read_prompts(path: Path) -> Prompts:
    """Return what was asked.

    Raises:
        DataError: if the file is not a JSON object.
        EvaluationError: if it has other keys or values.
    """
    return read_as(path, _PARSER, kind=dict)
