"""Puts the pages of the site together: those written here, the recipes' own, those made from code.

What a page has from code (settings, a file, the list of decisions) stands in it between two
comments, so that it is read wherever the page is; ``make results`` renders it. Links between files
of the repository become links between pages; a link to a file that is no page becomes its path.
"""

import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from pkgutil import resolve_name
from typing import get_args

from api_pages import describe_packages, make_api_pages
from groupwise.evaluation.alarms import Alarm, AlarmName
from groupwise.evaluation.report.phrases import Phrases
from settings_page import describe_section, describe_settings

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
OUT = ROOT / "build" / "docs"
_LINK = re.compile(r"(?<!!)\[([^\]]*)\]\(([^)\s#]+)(#[^)\s]*)?\)")
_COMMENT = re.compile(r"^<!-- .*? -->\n", re.MULTILINE | re.DOTALL)
_MADE = re.compile(
    r"^(<!-- (settings|decisions|packages|alarms|section: \S+|include: \S+) -->\n)"
    r".*?^(<!-- end of \w+ -->)$",
    re.MULTILINE | re.DOTALL,
)


def assemble(out: Path = OUT) -> None:
    """Write all pages into a new folder."""
    shutil.rmtree(out, ignore_errors=True)
    shutil.copytree(DOCS / "images", out / "images")
    pages = list_pages()
    for source, page in pages.items():
        text = relink(source.read_text(encoding="utf-8"), source, pages)
        _write(out / page, _COMMENT.sub("", text))
    for page, text in make_api_pages().items():
        _write(out / page, text)


def list_pages() -> dict[Path, str]:
    """Return the files that are pages, with the places of the pages."""
    found = {path: path.relative_to(DOCS).as_posix() for path in sorted(DOCS.rglob("*.md"))}
    found[ROOT / "CONTRIBUTING.md"] = "contributing.md"
    for readme in sorted((ROOT / "src" / "groupwise_recipes").glob("*/README*.md")):
        language = "zh/" if readme.name == "README.zh.md" else ""
        found[readme] = f"{language}recipes/{readme.parent.name}.md"
    return found


def relink(text: str, source: Path, pages: Mapping[Path, str]) -> str:
    """Return the text of a file as that of its page, with links that lead to pages.

    Raises:
        FileNotFoundError: if a link leads to nothing.
    """
    here = Path(pages[source]).parent

    def replace(found: re.Match[str]) -> str:
        words, place, anchor = found[1], found[2], found[3] or ""
        if "://" in place:
            return found[0]
        target = Path(os.path.normpath(source.parent / place))
        if not target.exists():
            raise FileNotFoundError(f"{source.relative_to(ROOT)} links to {place}")
        if target not in pages:
            return f"{words} (`{target.relative_to(ROOT)}`)"
        return f"[{words}]({os.path.relpath(pages[target], here)}{anchor})"

    return _LINK.sub(replace, text)


def render_made(text: str) -> str:
    """Return the text of a page with what it has from code as the code is now."""
    return _MADE.sub(lambda found: f"{found[1]}{_make(found[2])}\n{found[3]}", text)


def read_written(page: Path) -> str:
    """Return the text of a page without what it has from code."""
    return _MADE.sub("", page.read_text(encoding="utf-8"))


def _make(what: str) -> str:
    kind, _, name = what.partition(": ")
    if kind == "include":
        return _include(ROOT / name)
    if kind == "section":
        return describe_section(resolve_name(name))
    made = {
        "settings": describe_settings,
        "decisions": _list_decisions,
        "packages": describe_packages,
        "alarms": _list_alarms,
    }
    return made[kind]()


def _list_alarms() -> str:
    say = Phrases("en").say
    rows = [f"| `{name}` | {say(Alarm(name, 0).advice)} |" for name in get_args(AlarmName)]
    return "\n".join(("| alarm | what to do |", "|---|---|", *rows))


def _include(path: Path) -> str:
    kind = {"py": "python"}.get(path.suffix[1:], path.suffix[1:])
    return f"```{kind}\n{path.read_text(encoding='utf-8').strip()}\n```"


def _list_decisions() -> str:
    paths = sorted((DOCS / "decisions").glob("[0-9]*.md"))
    titles = [path.read_text(encoding="utf-8").partition("\n")[0].lstrip("# ") for path in paths]
    return "\n".join(f"- [{title}]({path.name})" for path, title in zip(paths, titles, strict=True))


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    assemble()
