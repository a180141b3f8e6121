"""Recipes: found by entry point, each with a config type, a plan of steps and a preview."""

import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, cast

from groupwise import core
from groupwise.core import Config, ConfigError, RunError
from groupwise.run.steps import Step

if TYPE_CHECKING:
    from groupwise.rewards import RewardCase
    from groupwise.run.task import Task

GROUP = "groupwise.recipes"

C = TypeVar("C", bound=Config)


@dataclass(frozen=True, slots=True)
class PreviewTable:
    """A table for people: a title, the names of the columns, and cells."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True, slots=True)
class ShownRow:
    """One row of the data as the model will see it."""

    prompt: str  # as the chat template writes it, with a mark in the place of each picture
    answer: str  # that is taught or right
    pictures: Sequence[str] = ()  # names of their files, in order


@dataclass(frozen=True, slots=True)
class Preview:
    """What a run would do, without doing it.

    ``later`` has, by the name of a step, what would make a run fail that comes so far; ``case``
    returns what the rewards are audited with; None: it is known when the run has prepared its data.
    """

    facts: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])  # for people
    problems: list[str] = field(default_factory=list[str])  # that would make any run fail
    later: Mapping[str, Sequence[str]] = field(default_factory=dict[str, Sequence[str]])
    shown: Sequence[ShownRow] = ()  # a few rows
    tables: Sequence[PreviewTable] = ()  # more for people; one without rows is not shown
    case: "Callable[[], RewardCase] | None" = None

    def list_problems(self, steps: Collection[str]) -> list[str]:
        """Return what would make a run of these steps fail."""
        reached = [clause for step in steps for clause in self.later.get(step, ())]
        return [*self.problems, *reached]


@dataclass(frozen=True, slots=True)
class Recipe(Generic[C]):
    """A whole job; neither its plan nor its preview writes anything."""

    name: str  # what people type
    summary: str  # one line
    # Its Config class, with a field ``seed``, or where to import it from (``module:name``), so that
    # listing recipes does not wait for what configs import.
    config_type: type[C] | str
    config_folder: Path  # where its YAML files are
    plan: Callable[[C, Path], list[Step]]  # of a run folder; reads inputs to digest them
    preview: Callable[[C], Preview]
    # Returns the Task that it is made of. If that has the part ``rewards``, they are audited in a
    # step ``audit_rewards`` that later steps may use.
    task: "Callable[[], Task[Any]] | None" = None
    headline: str = ""  # the measure that a finished run says before the accuracy
    # ``(runs, folder, language) -> lines``: writes a page of the recipe's own about several
    # finished runs, and returns what a terminal shows of it.
    report_study: Callable[[Sequence[Path], Path, Literal["en", "zh"]], Sequence[str]] | None = None
    # Has a folder for each kind of task that ``groupwise new`` can write, and ``shared``.
    template_folder: Path | None = None

    def load_config_type(self) -> type[C]:
        """Return the Config class; a ValueError if it has no seed: it could not be repeated."""
        found = self.config_type
        if isinstance(found, str):
            found = cast("type[C]", EntryPoint("config_type", found, GROUP).load())
        if "seed" not in found.model_fields:
            raise ValueError(f"{found.__name__} needs a field 'seed'")
        return found

    def find_rewarded(self) -> "Task[Any] | None":
        """Return the task whose rewards are audited; None if no step trains on rewards."""
        task = self.task() if self.task else None
        return task if task is not None and "rewards" in task.parts else None


def make_recipe(task: "Task[Any] | str", **named: Any) -> Recipe[Any]:
    """Return the recipe of a task, or of where to import it from when needed (``module:name``).

    ``named`` are the other fields of the ``Recipe``.
    """

    def load() -> "Task[Any]":
        return EntryPoint("task", task, "groupwise.tasks").load() if isinstance(task, str) else task

    def plan(config: Any, run: Path) -> list[Step]:
        from groupwise.run.stages import plan_stages

        return plan_stages(load(), config, run)

    return Recipe(plan=plan, preview=lambda config: load().preview(config), task=load, **named)


def find_recipes() -> dict[str, Recipe[Any]]:
    """Return all installed recipes by name, sorted; a ConfigError if one cannot be imported."""
    entries = sorted(entry_points(group=GROUP), key=lambda entry: entry.name)
    return {entry.name: _load(entry) for entry in entries}


def find_recipe(name: str, *, run: Path | None = None) -> Recipe[Any]:
    """Return the recipe called ``name``; the others are not imported.

    ``name`` is that of an installed recipe, or where to import one from (``module:name``), also in
    the working folder: a Recipe, or a class that makes one by ``make_recipe(name)``, as a Task
    does. ``run`` is whose manifest names it: code that lies in its folder is not imported. A
    ConfigError, with the nearest name, if there is none; a RunError if the run names code of its
    own.
    """
    if ":" not in name:
        entries = {entry.name: entry for entry in entry_points(group=GROUP)}
        if name not in entries:
            raise ConfigError(core.describe_unknown("recipe", name, sorted(entries)))
        return _load(entries[name])
    module = name.partition(":")[0]
    if not all(part.isidentifier() for part in module.split(".")):
        raise ConfigError(f"there is no module {module!r} to import a recipe from")
    # The working folder stands behind all others, and does not count if it is in the run.
    here = Path.cwd()
    is_own = run is not None and here.resolve().is_relative_to(run.resolve())
    if str(here) not in sys.path and not is_own:
        sys.path.append(str(here))
    if run is not None:
        _refuse_own_code(module, run.resolve())
    return _load(EntryPoint(name, name, GROUP))


def _refuse_own_code(module: str, run: Path) -> None:
    """Refuse a module of which a part lies in a run; nothing is imported to find out."""
    top, *rest = module.split(".")
    try:
        spec = find_spec(top)
    except ValueError:  # no name of a module
        return
    found = [] if spec is None else [spec.origin, *(spec.submodule_search_locations or ())]
    for place in filter(None, found):
        parts = (Path(place, *rest[:num]).resolve() for num in range(len(rest) + 1))
        if any(part.is_relative_to(run) for part in parts):
            raise RunError(
                f"the run {run} names code in its own folder as its recipe",
                got=module,
                fix="read it; to use it all the same, put it into a folder of yours",
            )


def _load(entry: EntryPoint) -> Recipe[Any]:
    try:
        recipe = entry.load()
    except (ImportError, AttributeError) as error:
        raise ConfigError(
            f"the recipe {entry.name} cannot be imported from {entry.value} ({error})",
            fix="install what it needs, or uninstall its package",
        ) from error
    recipe = recipe.make_recipe(entry.name) if hasattr(recipe, "make_recipe") else recipe
    if not isinstance(recipe, Recipe):
        raise ConfigError(
            f"{entry.value} is not a recipe", got=type(recipe).__name__, expected="a Recipe"
        )
    return recipe


def list_configs(recipe: Recipe[Any]) -> list[str]:
    """Return the names of the recipe's own configs, sorted."""
    return sorted(path.stem for path in recipe.config_folder.glob("*.yaml"))


def find_config(recipe: Recipe[Any], name_or_file: str | None = None) -> Path:
    """Return the path of a config given by name or as a file.

    Without a name: ``demo`` if the recipe has it, or its only config. A ConfigError, with the
    nearest name, if there is no such config, or it has none at all.
    """
    names = list_configs(recipe)
    if name_or_file is None and not names:
        raise ConfigError(
            f"the recipe {recipe.name} has no config of its own",
            fix="give a file; `groupwise new DIR` writes one" if recipe.template_folder else None,
        )
    if name_or_file is None:
        name_or_file = "demo" if "demo" in names or len(names) != 1 else names[0]
    if name_or_file in names:
        return recipe.config_folder / f"{name_or_file}.yaml"
    path = Path(name_or_file).expanduser()
    if path.is_file():
        return path
    is_file_meant = path.suffix in (".yaml", ".yml") or len(path.parts) > 1
    what = "config file" if is_file_meant else f"config of recipe {recipe.name}"
    raise ConfigError(core.describe_unknown(what, name_or_file, names))


def find_recipe_of(config: Path, *, overrides: Sequence[str] = ()) -> Recipe[Any]:
    """Return the recipe that a config file names (``recipe: NAME``), or the one that it fits.

    A ConfigError if there is no such file, or it names none and fits none or several.
    """
    if not config.is_file():
        raise ConfigError(f"there is no config file {str(config)!r}")
    named = core.read_config(config).get("recipe")
    if isinstance(named, str):
        return find_recipe(named)
    fitting: list[Recipe[Any]] = []
    for recipe in find_recipes().values():
        with suppress(ConfigError):
            core.load_config(recipe.load_config_type(), config, overrides=overrides)
            fitting.append(recipe)
    if len(fitting) != 1:
        raise ConfigError(
            f"{config} fits {len(fitting)} recipes",
            got=", ".join(recipe.name for recipe in fitting) or None,
            fix=f"name the recipe, and give the file as --config {config}",
        )
    return fitting[0]
