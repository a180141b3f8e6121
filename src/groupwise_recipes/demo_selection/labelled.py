"""Labelled questions of somebody else: each with one picture and the answers of several people."""

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from groupwise.core import DataError, Example, load_config, make_example
from groupwise.data import PICTURE_COLUMNS, AskedRow, DropLog, make_vqa_example, read_asked_rows
from groupwise.serving import Request
from groupwise_recipes.demo_selection.config import VqaFiles
from groupwise_recipes.demo_selection.data_stages import load_files
from groupwise_recipes.demo_selection.items import read_question
from groupwise_recipes.demo_selection.predictor import ask_about_picture


def read_labelled_questions(path: Path, shown: Iterable[Example]) -> tuple[list[Example], DropLog]:
    """Return the questions of a table, or of official files that a YAML file names.

    Args:
        path: a table whose rows have a ``question``, an ``image`` and ``answers``, a list of two
            or more people's; or YAML with ``questions``, ``annotations`` and ``pictures``, as
            ``data.vqa.test`` has them.
        shown: items that are shown or trained on; the same question about the same picture is not
            measured: it could be its own demonstration.

    Raises:
        DataError: if nothing can be read there.
    """
    if path.suffix in (".yaml", ".yml"):
        loaded = load_files(load_config(VqaFiles, path))
        found, drops = [make_vqa_example(row) for row in loaded.rows], loaded.drops
    else:
        rows, drops = read_asked_rows(path, pictures=PICTURE_COLUMNS)
        found = [one for row in rows if (one := _read_row(row, drops)) is not None]
    known = {_identify(one) for one in shown}
    for one in found:
        if _identify(one) in known:
            drops.add("a demonstration or trained on", one.id)
    return [one for one in found if _identify(one) not in known], drops


def _read_row(row: AskedRow, drops: DropLog) -> Example | None:
    answers = row.values.get("answers")
    listed = answers if isinstance(answers, list) else []
    texts = [text for text in listed if isinstance(text, str) and text.strip()]
    if not row.values.get("question"):
        drops.add("no column question", row.where)
    elif not row.pictures:
        drops.add("no column image", row.where)
    elif len(texts) < 2:
        drops.add("no column answers with two or more people's", row.where)
    else:
        try:
            asked = ask_about_picture(Request(row.where, row.values, row.pictures))
        except DataError as fault:
            drops.add("unreadable question or picture", f"{row.where}: {fault}")
        else:
            return make_example(
                asked.prompt,
                cluster=asked.pictures[0].digest,
                label=Counter(text.strip() for text in texts).most_common(1)[0][0],
                fields={**asked.fields, "answers": texts},
            )
    return None


def _identify(item: Example) -> tuple[str, str]:
    return item.pictures[0].digest, read_question(item)
