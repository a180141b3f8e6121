"""``groupwise feedback``: what people said of served answers."""

import os
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.console import Console
from rich.table import Table

from groupwise.cli.run import Debug
from groupwise.core import ConfigError

if TYPE_CHECKING:
    from groupwise.feedback import FeedbackStore

PERSON_KEY_VARIABLE = "GROUPWISE_PERSON_KEY"
_DAY_S = 86_400.0
_MIN_KEY_LENGTH = 16

feedback_app = typer.Typer(help="Read and hand on what people said of served answers.")

Folder = Annotated[Path, typer.Argument(metavar="DIR", help="The server's feedback.folder.")]
Url = Annotated[
    str | None, typer.Option("--url", help="The server's feedback.url, for PostgreSQL.")
]
File = Annotated[Path, typer.Option("--out", metavar="FILE", help="File that is written.")]


@feedback_app.callback()
def feedback() -> None:
    """Read and hand on what people said of served answers."""


def read_person_key() -> bytes:
    """Return the key of the digests under which people are kept."""
    key = os.environ.get(PERSON_KEY_VARIABLE, "")
    if len(key) < _MIN_KEY_LENGTH:
        raise ConfigError(
            f"{PERSON_KEY_VARIABLE} is not set to a secret of {_MIN_KEY_LENGTH} characters or more",
            fix="users are kept as digests with this key; set it, and keep it",
        )
    return key.encode()


def open_store(
    folder: Path, url: str | None, *, max_items: int = 10_000, is_new: bool = False
) -> "FeedbackStore":
    """Return the store in a folder."""
    try:
        from groupwise.feedback import FeedbackStore
    except ImportError as error:
        raise ConfigError(
            f"feedback needs {error.name}", fix="pip install 'groupwise[learn]'"
        ) from error
    if not is_new and not folder.is_dir():
        raise ConfigError(f"there is no folder {folder}")
    return FeedbackStore(folder, url, max_items=max_items)


@feedback_app.command()
def show(folder: Folder, *, url: Url = None, debug: Debug = False) -> None:
    """Count answers, labels, corrections and disagreements, by version."""
    store = open_store(folder, url)
    items, silent = store.list_items(), store.list_unlabelled()
    store.close()
    table = Table("version", "answers", "confirmed", "corrected", "disagreed on", box=None)
    versions = Counter(one.version for one in silent)
    versions.update(item.shown.version for item in items)
    for version, num_answers in sorted(versions.items()):
        own = [item for item in items if item.shown.version == version]
        corrected = sum(item.is_correction for item in own)
        disagreed = sum(item.label is None for item in own)
        numbers = (num_answers, len(own) - corrected - disagreed, corrected, disagreed)
        table.add_row(version, *(f"{number:,}" for number in numbers))
    Console(width=100).print(table)


@feedback_app.command()
def export(
    folder: Folder,
    *,
    out: File,
    form: Annotated[
        Literal["jsonl", "label-studio"],
        typer.Option("--format", help="JSONL of what was said, or Label Studio's tasks of all."),
    ] = "jsonl",
    address: Annotated[
        str, typer.Option(help="Of pictures in Label Studio: stands before their names.")
    ] = "/data/local-files/?d=",
    url: Url = None,
    debug: Debug = False,
) -> None:
    """Write answers and what people said of them; in JSONL what teaches most comes first."""
    store = open_store(folder, url)
    from groupwise.feedback import order_by_priority, write_items, write_label_studio

    items = store.list_items()
    if form == "jsonl":
        undecided = [item for item in items if item.label is None]
        write_items(out, [*order_by_priority(items), *undecided])
        typer.echo(f"{out}: {len(items):,} items, {len(undecided):,} of them disagreed on")
    else:
        shown = [*(item.shown for item in items), *store.list_unlabelled()]
        write_label_studio(out, shown, address=address)
        typer.echo(f"{out}: {len(shown):,} tasks")
    store.close()


@feedback_app.command(name="import")
def take(
    folder: Folder,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="An export of Label Studio, JSON.")],
    *,
    url: Url = None,
    debug: Debug = False,
) -> None:
    """Take labels that were given in Label Studio; those that are known change nothing."""
    from groupwise.core import DataError
    from groupwise.feedback import name_person, read_label_studio

    key, store = read_person_key(), open_store(folder, url)
    num_new, unknown = 0, list[str]()
    for answer, person, label in read_label_studio(file):
        try:
            num_new += store.say(answer, name_person(person, key), label)
        except DataError:
            unknown.append(answer)
    store.close()
    typer.echo(f"{num_new:,} new labels")
    if unknown:
        raise DataError(
            f"{len(unknown):,} labels are of answers that are not kept (any more), such as "
            f"{unknown[0]!r}; the others were taken"
        )


@feedback_app.command()
def delete_person(
    folder: Folder,
    user: Annotated[str, typer.Argument(help="As askers name them.")],
    *,
    url: Url = None,
    debug: Debug = False,
) -> None:
    """Delete all that a user said, and list the versions that were trained on it."""
    from groupwise.feedback import name_person

    key, store = read_person_key(), open_store(folder, url)
    gone = store.delete_person(name_person(user, key))
    store.close()
    typer.echo(f"{gone.num_labels:,} labels deleted")
    for version in gone.versions:
        typer.echo(f"trained on some of them: {version}")


@feedback_app.command()
def delete_pictures(
    folder: Folder,
    *,
    older_than_days: Annotated[float, typer.Option(min=0, help="Since the answer.")],
    url: Url = None,
    debug: Debug = False,
) -> None:
    """Delete the pictures of old answers; what was answered and said of them stays."""
    store = open_store(folder, url)
    num_gone = store.delete_pictures(time.time() - older_than_days * _DAY_S)
    store.close()
    typer.echo(f"{num_gone:,} pictures deleted")
