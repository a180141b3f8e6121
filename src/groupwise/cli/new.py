"""``groupwise new``: write a folder with a task of your own that runs as it is."""

import shutil
from pathlib import Path
from typing import Annotated

import typer
import yaml

from groupwise.core import ConfigError, describe_unknown
from groupwise.pipeline import find_recipes

SHARED = "shared"
"""Folder with what tasks of all kinds start from."""
TINY = "tiny.yaml"
"""File of a kind with what ``--tiny`` changes in the settings of its task."""


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
    tiny: Annotated[
        bool,
        typer.Option(
            "--tiny", help="With a tiny model of random weights: shows in seconds that all runs."
        ),
    ] = False,
) -> None:
    """Write a task of your own: a config, a few rows, a reward and what to do with them."""
    templates = _find_templates()
    if kind not in templates:
        raise ConfigError(describe_unknown("kind of task", kind, list(templates)))
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigError(f"{folder} is there already", fix="name a new folder")
    for source in (templates[kind].with_name(SHARED), templates[kind]):
        shutil.copytree(source, folder, dirs_exist_ok=True, ignore=lambda *_: [TINY, "__pycache__"])
    if tiny:
        _shrink(folder / "task.yaml", templates[kind] / TINY)
    typer.echo(f"wrote {folder}: {', '.join(sorted(path.name for path in folder.iterdir()))}")
    for config in sorted(folder.glob("*.yaml")):
        typer.echo(f"check it: groupwise run {config} --dry-run")
        typer.echo(f"run it:   groupwise run {config}")


def _shrink(config: Path, changes: Path) -> None:
    """Write a task's settings again with those of a tiny model, without its comments."""
    settings = yaml.safe_load(config.read_text(encoding="utf-8"))
    for name, section in yaml.safe_load(changes.read_text(encoding="utf-8")).items():
        settings[name] = {**settings.get(name, {}), **section}
    config.write_text(
        yaml.safe_dump(settings, sort_keys=False, allow_unicode=True), encoding="utf-8"
    )


def _find_templates() -> dict[str, Path]:
    """Return the folders of the kinds of tasks that recipes can be started from."""
    folders = [recipe.template_folder for recipe in find_recipes().values()]
    found = [path for folder in folders if folder for path in sorted(folder.iterdir())]
    return {path.name: path for path in found if path.name != SHARED}
