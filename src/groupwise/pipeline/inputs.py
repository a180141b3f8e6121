"""What steps read from outside: models and code that people edit, each by its content."""

import ast
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

from groupwise.core import digest_bytes, digest_json

UNKNOWN = "unknown"
"""Stands for a model of the hub that is not in the local cache while the hub cannot be asked."""


def digest_models(models: Mapping[str, Path | str | None]) -> dict[str, str]:
    """Return what models are known by, by their setting: a digest, a commit, or ``UNKNOWN``.

    Args:
        models: folders and hub ids; None: there is no such model, or it is built in the run.
    """
    from groupwise.models import digest_base

    given = {name: model for name, model in models.items() if model is not None}
    return {name: digest_base(model) or UNKNOWN for name, model in given.items()}


def digest_code(*names: str) -> dict[str, str]:
    """Return digests of source code by the dotted names of modules and packages.

    A package is the files in its folder, texts beside the code included, without the packages in
    it. Comments and layout of Python code do not count, docstrings do: some are prompts. Nothing
    is imported.

    Raises:
        ValueError: if there is no such code.
    """
    return {name: _digest_source(_find_source(name)) for name in names}


def _find_source(name: str) -> Path:
    top, *rest = name.split(".")
    spec = find_spec(top)
    if spec is not None and not rest and spec.submodule_search_locations is None and spec.origin:
        return Path(spec.origin)
    for folder in (spec and spec.submodule_search_locations) or ():
        place = Path(folder, *rest)
        if place.is_dir():
            return place
        if place.with_suffix(".py").is_file():
            return place.with_suffix(".py")
    raise ValueError(f"there is no source code of {name}")


def _digest_source(path: Path) -> str:
    if path.is_dir():
        files = sorted(file for file in path.iterdir() if file.is_file())
        return digest_json([[file.name, _digest_source(file)] for file in files])
    content = path.read_bytes()
    if path.suffix not in (".py", ".pyi"):
        return digest_bytes(content)
    try:
        return digest_bytes(ast.dump(ast.parse(content)).encode("utf-8", "surrogatepass"))
    except (SyntaxError, ValueError):
        return digest_bytes(content)
