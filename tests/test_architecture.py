"""The house itself: public names, layers, sizes, configs, and that the README tells the truth."""

import ast
import importlib
import json
import pkgutil
import re
import shlex
import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path
from types import FunctionType, ModuleType

import click
import grimp
import pytest

import groupwise
import groupwise_drawn
import groupwise_recipes
from groupwise.cli.main import app
from groupwise.core import load_config
from groupwise.run.recipe import find_config, find_recipe, find_recipes, list_configs

ROOT = Path(__file__).parents[1]
SOURCES = sorted((ROOT / "src").rglob("*.py"))
PACKAGES = [
    name
    for root in (groupwise, groupwise_drawn, groupwise_recipes)
    for name in (
        root.__name__,
        *(m.name for m in pkgutil.walk_packages(root.__path__, f"{root.__name__}.") if m.ispkg),
    )
]
TEXT_SUFFIXES = {".py", ".md", ".toml", ".txt", ".yaml", ".j2", ".css", ".html", ""}


def list_tracked() -> list[Path]:
    """Return the project's text files: those that git tracks, or all of a plain copy."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if found.returncode == 0:
        paths = [ROOT / line for line in found.stdout.splitlines()]
    else:
        paths = [p for folder in ("src", "tests", "docs") for p in (ROOT / folder).rglob("*")]
    return [path for path in paths if path.suffix in TEXT_SUFFIXES and path.is_file()]


def read_commands(path: Path) -> list[str]:
    """Return the ``groupwise`` and ``make`` lines of a page's code blocks, joined over ``\\``."""
    text = path.read_text(encoding="utf-8").replace("\\\n", " ")
    blocks = re.findall(r"^```[a-z]*\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)
    lines = [line.strip().removeprefix("$ ") for block in blocks for line in block.splitlines()]
    return [line for line in lines if line.startswith(("groupwise ", "make "))]


OWN_TASK = ROOT / "examples" / "own_task"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
PAGES += sorted((ROOT / "src" / "groupwise_recipes").rglob("README*.md"))
PAGES += sorted((ROOT / "docs").rglob("*.md"))
COMMANDS = [(page.name, line) for page in PAGES for line in read_commands(page)]


@pytest.mark.parametrize("name", PACKAGES)
def test_public_names_are_listed(name: str):
    package = importlib.import_module(name)
    listed = list(getattr(package, "__all__", []))
    assert not any(isinstance(getattr(package, name), ModuleType) for name in listed)
    public = {
        attribute
        for attribute, value in vars(package).items()
        if not attribute.startswith("_") and not isinstance(value, ModuleType)
    }
    public |= {attribute for attribute in listed if attribute.startswith("__")}
    assert len(listed) == len(set(listed))
    assert set(listed) == public


def test_layers_and_doors_are_kept():
    linter = Path(sys.executable).parent / "lint-imports"
    done = subprocess.run([linter], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert "0 broken" in done.stdout


def list_imports(path: Path) -> list[ast.ImportFrom]:
    nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    return [node for node in nodes if isinstance(node, ast.ImportFrom)]


def test_recipes_use_public_names_only():
    """A package that lists no names is public by its modules."""
    modules = [path for path in SOURCES if "groupwise_recipes" in path.parts]
    found = {str(node.module) for path in modules for node in list_imports(path)}
    imported = {name for name in found if name.startswith(("groupwise.", "groupwise_drawn."))}
    assert imported
    deep = {name for name in imported if name.count(".") > 1}
    packages = {name: importlib.import_module(".".join(name.split(".")[:2])) for name in deep}
    assert [name for name, package in packages.items() if hasattr(package, "__all__")] == []


def test_no_modules_import_one_another_in_a_circle():
    packages = ("groupwise", "groupwise_drawn", "groupwise_recipes")
    options = {"cache_dir": None, "exclude_type_checking_imports": True}
    graph = grimp.build_graph(*packages, **options)
    imports = {name: graph.find_modules_directly_imported_by(name) for name in graph.modules}
    assert len(imports) > 300
    TopologicalSorter(imports).prepare()  # raises where there is one


def test_every_config_of_every_recipe_is_valid():
    recipes = find_recipes()
    assert recipes
    for recipe in recipes.values():
        assert list_configs(recipe) or recipe.template_folder or recipe.name == "round"
        for config in list_configs(recipe):
            assert load_config(recipe.load_config_type(), find_config(recipe, config))


@pytest.mark.parametrize(("page", "command"), COMMANDS)
def test_commands_in_the_pages_exist(page: str, command: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(OWN_TASK)
    monkeypatch.syspath_prepend(OWN_TASK)
    program, *words = shlex.split(command, comments=True)
    if program == "make":
        targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
        assert [word for word in words if "=" not in word and word not in targets] == []
        return
    command = app
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        command = command.get_command(None, words.pop(0))
    # The files of a task that `groupwise new` writes are checked by tests/docs/test_tutorial.py.
    is_of_tutorial = "my_task/task.yaml" in words
    values = parse_words(command, words)
    if values.get("recipe") and not (is_of_tutorial or values.get("replay")):
        recipe = find_recipe(values["recipe"])
        path = find_config(recipe, values.get("config"))
        load_config(recipe.load_config_type(), path, overrides=values.get("settings") or [])


def parse_words(command: object, words: list[str]) -> dict[str, object]:
    """Parse a command's words as it would itself, running nothing."""
    if words == ["--version"]:
        return {}
    return command.make_context(str(command.name), words).params


def test_the_readme_has_the_two_commands():
    assert {"make demo", "make test"} <= set(read_commands(ROOT / "README.md"))


def test_ci_refuses_a_readme_without_the_test_command():
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert "make check" in script
    assert re.search(r"grep .*make test.* README\.md", script)


def test_what_is_public_is_documented():
    """A docstring of its own: what a base class says of itself does not count."""
    packages = [importlib.import_module(name) for name in PACKAGES]
    public = {
        f"{p.__name__}.{n}": getattr(p, n) for p in packages for n in getattr(p, "__all__", [])
    }
    for path in SOURCES:  # of packages without a list: what others import
        own = ".".join(path.relative_to(ROOT / "src").parts[:2])
        for node in list_imports(path):
            if str(node.module).startswith("groupwise.") and not f"{node.module}.".startswith(own):
                module = importlib.import_module(str(node.module))
                public |= {f"{node.module}.{a.name}": getattr(module, a.name) for a in node.names}
    kinds = (type, FunctionType)
    assert any(isinstance(value, kinds) for value in public.values())
    assert [
        n for n, value in public.items() if isinstance(value, kinds) and not has_words(value)
    ] == []


def has_words(value: type | FunctionType) -> bool:
    """Say whether it has a docstring that was written, not the one that dataclasses make."""
    words = vars(value).get("__doc__") if isinstance(value, type) else value.__doc__
    return bool(words) and not words.startswith(f"{value.__name__}(")


def test_functions_end_at_eighty_lines():
    """Its docstring is not counted."""
    long: list[str] = []
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                doc = node.body[0] if ast.get_docstring(node) else None
                num_lines = node.end_lineno - node.lineno + 1
                num_lines -= doc.end_lineno - doc.lineno + 1 if doc else 0
                if num_lines > 80:
                    long.append(f"{path.relative_to(ROOT)}:{node.lineno} {node.name}")
    assert long == []


def test_files_end_at_six_hundred_lines():
    lengths = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in SOURCES}
    assert [path for path, num_lines in lengths.items() if num_lines > 600] == []


def test_pictures_are_opened_in_one_place():
    """Elsewhere a file could be of a format that starts a program, or end a run as a bug."""
    found = [p.name for p in SOURCES if re.search(r"(Image|cv2)\.(open|imread)\b", p.read_text())]
    assert found == ["pictures.py"]


def test_every_module_says_what_it_is():
    silent = [p for p in SOURCES if not ast.get_docstring(ast.parse(p.read_text("utf-8")))]
    assert silent == []


def test_modules_are_nouns_that_say_something():
    vague = {"util", "utils", "helper", "helpers", "common", "manager", "misc"}
    assert [path for path in SOURCES if path.stem in vague or path.parent.name in vague] == []


MISTAKES = (
    ("--help",),
    ("run", "--list"),
    ("run", "--help"),
    ("run", "no_such_recipe"),
    *(("run", recipe, "--set", "no.such=1") for recipe in ("on_task", "group_qc")),
)


def test_a_mistake_in_a_command_or_a_config_is_told_without_torch():
    code = """
import json, sys
from groupwise.cli.main import main
for words in json.loads(sys.argv.pop()):
    sys.argv[1:] = words
    try:
        main()
    except SystemExit as leaving:
        heavy = sorted({'torch', 'transformers', 'trl', 'sklearn'} & set(sys.modules))
        print(leaving.code, heavy, file=sys.stderr)
"""
    command = [sys.executable, "-c", code, json.dumps(MISTAKES)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    answers = [line for line in done.stderr.splitlines() if line.endswith("]")]
    assert answers == ["0 []", "0 []", "0 []", "2 []", "2 []", "2 []"], done.stderr
    assert done.stderr.count("no: unknown key") == 2


READERS = ("cli.compare", "cli.watch", "evaluation", "data", "run.recipe")


def test_what_reads_results_does_not_wait_for_torch():
    code = f"import sys, {', '.join(f'groupwise.{name}' for name in READERS)}\n"
    code += "print(sorted({'torch', 'trl'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


# Built from pieces, so that this file does not contain what it looks for.
_UNFINISHED = re.compile(r"\b(" + "|".join(["TO" + "DO", "FIX" + "ME", "XX" + "X"]) + r")\b")
_MACHINE_PATH = re.compile(r"(?<![\w.~/-])/(" + "|".join(["work", "root"]) + r")(/|\b)")


def find_in_files(pattern: re.Pattern[str]) -> list[str]:
    return [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in list_tracked()
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        if pattern.search(line)
    ]


def test_nothing_is_left_unfinished():
    assert find_in_files(_UNFINISHED) == []


def test_no_paths_of_a_machine():
    assert find_in_files(_MACHINE_PATH) == []


def test_pages_link_to_files_that_exist():
    pages = [path for path in list_tracked() if path.suffix == ".md"]
    broken = [
        f"{page.relative_to(ROOT)}: {link}"
        for page in pages
        for link in re.findall(r"\]\(([^)#]+)", page.read_text(encoding="utf-8"))
        if "://" not in link and not (page.parent / link).exists()
    ]
    assert broken == []
