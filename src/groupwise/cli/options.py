"""Options that several verbs share, and the recipe and config that their words name."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from groupwise.core import Config, ConfigError, RunFolder, load_config

PATH = click.Path(path_type=Path)
TOKEN_VARIABLE = "GROUPWISE_TOKEN"
COUNT = click.IntRange(min=1)


def option(
    words: str, help: str = "", *, show_default: bool | str = True, **more: Any
) -> Callable[[Any], Any]:
    """Return a decorator for an option whose help ends with what is taken where none is given.

    ``words`` are its flag, the parameter's name if that is another, and, in capitals, its value.
    """
    names = [word for word in words.split() if word.islower()]
    values = [word for word in words.split() if not word.islower()]
    more |= {"metavar": values[0]} if values else {}
    return click.option(*names, help=help, show_default=show_default, **more)


def _allow_hosts(_context: object, _option: object, hosts: Sequence[str]) -> None:
    """Remember the hosts before anything is read that leads to one."""
    if hosts:
        from groupwise.inference.settings import allow_hosts

        allow_hosts(list(hosts))


allow_judge = option(
    "--allow-judge HOST",
    "Let configs and runs send rows, pictures and their _API_KEY to this host, from now on. "
    "Repeatable.",
    multiple=True,
    expose_value=False,
    is_eager=True,
    callback=_allow_hosts,
)
dry_run = option("--dry-run", "Check everything, print it, write nothing.", is_flag=True)
language = option(
    "--language", "Of what is written.", type=click.Choice(["en", "zh"]), default="en"
)
url = option("--url", "The server's feedback.url, for PostgreSQL.")
accept = option(
    "--accept FINDING",
    "Train although the reward audit finds this; the report says so. Repeatable.",
    multiple=True,
)
sample = option(
    "--sample N",
    "Let the reward audit look at so many answers of the base; says how long it takes.",
    type=click.IntRange(min=0),
    default=0,
    show_default="none",
)


def settings(function: Any) -> Any:
    """Add ``--set``, which changes settings of a config."""
    change = "Change one setting. Repeatable."
    return option("--set settings KEY=VALUE", change, multiple=True)(function)


def choose_out(default: str, *, what: str = "Run folder.") -> Callable[[Any], Any]:
    """Return the option ``--out`` of a folder that has a usual place."""
    return option("--out DIR", what, type=PATH, show_default=default)


def takes_recipe(function: Any) -> Any:
    """Add the words that name a recipe and its config: ``recipe``, ``config``, ``settings``."""
    usual = "demo, or the recipe's only one"
    config = option("--config NAME_OR_FILE", "A config or a YAML file.", show_default=usual)
    return click.argument("recipe", metavar="RECIPE|CONFIG")(config(settings(function)))


@dataclass(frozen=True, slots=True)
class Job:
    """A recipe, the name of its config (None: the usual one) and changed settings."""

    recipe: Any
    config_name: str | None
    settings: list[str]

    @classmethod
    def choose(cls, name: str, config: str | None, settings: Sequence[str]) -> "Job":
        """Return the recipe called ``name``; a config file names its recipe itself."""
        from groupwise.run.recipe import find_recipe, find_recipe_of

        if Path(name).suffix not in (".yaml", ".yml"):
            return cls(find_recipe(name), config, list(settings))
        if config is not None:
            raise ConfigError("two configs are given", got=f"{name} and --config {config}")
        return cls(find_recipe_of(Path(name), overrides=settings), name, list(settings))

    @property
    def config_path(self) -> Path:
        """Where the config is."""
        from groupwise.run.recipe import find_config

        return find_config(self.recipe, self.config_name)

    @property
    def folder(self) -> Path:
        """The run folder where none is given."""
        path, name = self.config_path, self.recipe.name
        own = path.absolute().parent.name if path.stem == name else path.stem
        return Path("runs") / f"{name}-{own}"

    def load(self, recorded: Path | None = None) -> Config:
        """Load the config; without a name, what the run ``recorded`` if given."""
        kind = self.recipe.load_config_type()
        if self.config_name is None and recorded is not None:
            manifest = RunFolder(recorded).read_manifest()
            if manifest["recipe"] == self.recipe.name:
                return load_config(kind, manifest["config"], overrides=self.settings)
        return load_config(kind, self.config_path, overrides=self.settings)


def split_run(run: str) -> tuple[Path, str | None]:
    """Return folder and policy of ``RUN`` or ``RUN:POLICY``."""
    folder, _, policy = run.rpartition(":")
    return (Path(run), None) if not folder or Path(run).is_dir() else (Path(folder), policy)


def say(line: str) -> None:
    """Print a line about the work that goes on, on stderr."""
    click.echo(line, err=True)


def say_of_step(line: str) -> None:
    """Print a line about the work of a step, below the line that the step began with."""
    say(f"  {line}")


def print_progress(progress: Any) -> None:
    """Print one line when a step begins and one when it has ended, on stderr."""
    say(progress.describe())


def print_drops(drops: Any) -> None:
    """Print how many rows are not used, by reason, on stderr."""
    for reason, count in drops.counts.items():
        say(f"not used: {count:,} {reason}")
