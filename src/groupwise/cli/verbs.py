"""The verbs of the command line; a verb is imported when it is used.

Other packages add verbs as entry points of the group ``groupwise.commands``; they do not replace
one of ours. What the list of verbs says of each is read from its source, so that
``groupwise --help`` waits for nothing that a verb imports.
"""

import ast
from collections.abc import Iterator, Mapping
from importlib import import_module
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

_OWN = {
    "new": "new:new",
    "run": "run:run",
    "sweep": "sweep:sweep",
    "compare": "compare:compare",
    "report": "compare:report",
    "predict": "predict:predict",
    "evaluate": "evaluate:evaluate",
    "serve": "serve:serve",
    "recipes": "recipes:recipes",
    "models": "models:models_app",
    "doctor": "doctor:doctor",
    "export": "export:export",
    "export-model": "export:export_model",
    "push": "export:push",
    "watch": "watch:watch",
    "data": "data:data_app",
    "feedback": "feedback:feedback_app",
    "learn": "learn:learn",
    "verify": "learn:verify",
    "roll-back": "learn:roll_back",
    "audit": "audit:audit_app",
    "judge": "judge:judge_app",
}
"""Where each verb is: a module of this package and a function or a Typer app in it."""


def find_verbs() -> dict[str, str]:
    """Return where all verbs are: module and attribute, ours first."""
    own = {name: f"groupwise.cli.{place}" for name, place in _OWN.items()}
    added = {point.name: point.value for point in entry_points(group="groupwise.commands")}
    return own | {name: place for name, place in sorted(added.items()) if name not in own}


class _Verbs(Mapping[str, Any]):
    """The commands by name, each imported when it is looked up."""

    def __init__(self, places: Mapping[str, str]) -> None:
        self.places = places

    def __getitem__(self, name: str) -> Any:
        module, _, attribute = self.places[name].partition(":")
        found = getattr(import_module(module), attribute)
        if not isinstance(found, typer.Typer):
            app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
            app.command(name)(found)
            found = app
        command = typer.main.get_command(found)
        command.name = name
        return command

    def __iter__(self) -> Iterator[str]:
        return iter(self.places)

    def __len__(self) -> int:
        return len(self.places)


class VerbGroup(TyperGroup):
    """All verbs, of which only the one that is used is imported."""

    def __init__(self, **named: Any) -> None:
        super().__init__(**named)
        self.places = find_verbs()
        self.commands: Any = _Verbs(self.places)
        self._is_listing = False

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names, in the order of a job."""
        return list(self.places)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a verb; for the list of verbs, only what stands there."""
        if cmd_name not in self.places:
            return None
        if self._is_listing:
            return TyperCommand(cmd_name, help=read_summary(self.places[cmd_name]))
        return self.commands[cmd_name]

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the list of verbs."""
        self._is_listing = True
        super().format_help(ctx, formatter)


def read_summary(place: str) -> str:
    """Return what a verb does: the docstring of its function, or of its app's callback."""
    module, _, attribute = place.partition(":")
    tree = ast.parse(_find_source(module).read_text(encoding="utf-8"))
    wanted = attribute.removesuffix("_app")
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    found = next(function for function in functions if function.name == wanted)
    return ast.get_docstring(found) or ""


def _find_source(module: str) -> Path:
    """Return the file of a module, whose packages are not imported for it."""
    top, *inner = module.split(".")
    spec = find_spec(top)
    assert spec is not None
    [folder] = spec.submodule_search_locations or [""]
    return Path(folder, *inner).with_suffix(".py") if inner else Path(str(spec.origin))
