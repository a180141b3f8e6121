"""Items on the page of a run: pictures, prompts, truths and answers."""

from collections.abc import Sequence
from pathlib import Path

from groupwise.evaluation.page import Card, Paragraph, Part, Verbatim, Words, mark_code, shorten
from groupwise.evaluation.predictions import Prediction
from groupwise.evaluation.prompts import MAX_TEXT, Prompts

MAX_ANSWER = 60
"""Characters of a label or another parsed answer."""


def show_item(
    one: Prediction,
    said: str,
    words: Words,
    *,
    pills: Sequence[tuple[str, str]],
    picture: Path | None,
    asked: Prompts,
) -> Card:
    """Return a card; ``pills`` follow the truth.

    Its title is the item's field ``task`` or, where it has none, the last turn of its prompt.
    """
    task = one.fields.get("task") or asked.turns.get(one.example_id)
    truth = words.label("truth_is", label=shorten(one.label, MAX_ANSWER))
    where = words.label("where", cluster=mark_code(one.cluster), item=mark_code(one.example_id[:8]))
    gone = words.label("picture_gone" if picture is None else "picture_broken")
    return Card(
        title=shorten(task, MAX_TEXT) if isinstance(task, str) else words.label("no_task"),
        pills=(("truth", truth), *pills),
        said=f"{said}; {where}",
        picture=picture,
        gone=gone if one.pictures else "",
        alt=words.label("picture_of", item=one.example_id[:8]),
    )


def show_prompt(asked: Prompts, *, split: str, words: Words) -> tuple[Part, ...]:
    """Return one prompt as the model sees it, where the run knows it."""
    if not asked.shown:
        return ()
    pictures = words.label("with_pictures", names=asked.pictures) if asked.pictures else ""
    values = {"item": asked.item[:8], "split": split, "pictures": pictures}
    blocks = (Paragraph(words.label("prompt_lead", **values)), Verbatim(asked.shown))
    return (Part("prompt", words.label("prompt"), blocks),)


def find_picture(pictures: Sequence[str], folder: Path) -> Path | None:
    """Return the first picture, named from the run's folder or from here; None if it is gone."""
    if not pictures:
        return None
    return next((p for p in (folder / pictures[0], Path(pictures[0])) if p.is_file()), None)
