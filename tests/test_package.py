"""What is installed is whole: every file that the code reads travels with the package."""

import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_every_file_beside_the_code_is_package_data():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    for package, patterns in project["tool"]["setuptools"]["package-data"].items():
        folder = ROOT / "src" / package
        packed = {path for pattern in patterns for path in folder.glob(pattern)}
        beside = {p for p in folder.rglob("*") if p.is_file() and "__pycache__" not in p.parts}
        assert {p for p in beside if p.suffix != ".py"} <= packed, package
