"""The verbs of the command line; a verb is imported when it is used.

What the list of verbs says of each is read from its source, so that ``groupwise --help`` waits for
nothing that a verb imports.
"""

import ast
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

_VERBS = {
    "new": "new:new",
    "run": "run:run",
    "sweep": "sweep:sweep",
    "compare": "compare:compare",
    "report": "report:report",
    "predict": "predict:predict",
    "evaluate": "evaluate:evaluate",
    "serve": "serve:serve",
    "recipes": "recipes:recipes",
    "doctor": "doctor:doctor",
    "export": "export:export",
    "export-model": "export:export_model",
    "push": "export:push",
    "watch": "watch:watch",
    "audit": "audit:audit_app",
    "judge": "judge:judge_app",
}
"""Where each verb is: a module of this package and a function or a Typer app in it."""


class _Verbs(Mapping[str, Any]):
    """The commands by name, each imported when it is looked up."""

    def __getitem__(self, name: str) -> Any:
        module, _, attribute = _VERBS[name].partition(":")
        found = getattr(import_module(f"groupwise.cli.{module}"), attribute)
        if not isinstance(found, typer.Typer):
            app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
            app.command(name)(found)
            found = app
        command = typer.main.get_command(found)
        command.name = name
        return command

    def __iter__(self) -> Iterator[str]:
        return iter(_VERBS)

    def __len__(self) -> int:
        return len(_VERBS)


class VerbGroup(TyperGroup):
    """All verbs, of which only the one that is used is imported."""

    def __init__(self, **named: Any) -> None:
        super().__init__(**named)
        self.commands: Any = _Verbs()
        self._is_listing = False

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names, in the order of a job."""
        return list(_VERBS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a verb; for the list of verbs, only what stands there."""
        if cmd_name not in _VERBS:
            return None
        if self._is_listing:
            return TyperCommand(cmd_name, help=read_summary(cmd_name))
        return self.commands[cmd_name]

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the list of verbs."""
        self._is_listing = True
        super().format_help(ctx, formatter)


def read_summary(verb: str) -> str:
    """Return what a verb does: the docstring of its function, or of its app's callback."""
    module, _, attribute = _VERBS[verb].partition(":")
    tree = ast.parse(Path(__file__).with_name(f"{module}.py").read_text(encoding="utf-8"))
    wanted = attribute.removesuffix("_app")
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    found = next(function for function in functions if function.name == wanted)
    return ast.get_docstring(found) or ""
