"""``groupwise new``: write a folder with a task of your own that runs as it is."""

import shutil
from pathlib import Path
from typing import Annotated

import typer

from groupwise.core import ConfigError, describe_unknown
from groupwise.pipeline import find_recipes

SHARED = "shared"
"""Folder with what tasks of all kinds start from."""


def new(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The new folder.")],
    *,
    kind: Annotated[
        str,
        typer.Option(
            "--kind",
            help="labels, choice, number, text, json, code or pictures: what answers are; checker: "
            "code alone says what is good.",
        ),
    ] = "labels",
) -> None:
    """Write a task of your own: a config, a few rows, a reward and what to do with them."""
    templates = _find_templates()
    if kind not in templates:
        raise ConfigError(describe_unknown("kind of task", kind, list(templates)))
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigError(f"{folder} is there already", fix="name a new folder")
    for source in (templates[kind].with_name(SHARED), templates[kind]):
        shutil.copytree(source, folder, dirs_exist_ok=True)
    typer.echo(f"wrote {folder}: {', '.join(sorted(path.name for path in folder.iterdir()))}")
    for config in sorted(folder.glob("*.yaml")):
        typer.echo(f"check it: groupwise run {config} --dry-run")
        typer.echo(f"run it:   groupwise run {config}")


def _find_templates() -> dict[str, Path]:
    """Return the folders of the kinds of tasks that recipes can be started from."""
    folders = [recipe.template_folder for recipe in find_recipes().values()]
    found = [path for folder in folders if folder for path in sorted(folder.iterdir())]
    return {path.name: path for path in found if path.name != SHARED}
