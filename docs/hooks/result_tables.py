"""Tables of measured numbers in pages, rendered from the files of ``benchmarks/results``.

    python docs/hooks/result_tables.py

A block is a comment with the name of a file and a Jinja template over its values, ``r``; what
stands between it and ``<!-- end of results -->`` is rendered, with where the file is from below it.
"""

import json
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined

from assemble import ROOT, list_pages, render_made
from groupwise.evaluation.report import phrases

RESULTS = ROOT / "benchmarks" / "results"
_BLOCK = re.compile(r"(<!-- results: (\S+)\n(.*?)\n-->\n).*?(<!-- end of results -->)", re.DOTALL)
_MEASURED = re.compile(
    r"[+\u2212±]\s?\d|[\d.,]+\s?(?:%|×|points\b|times\b)|\d+\.\d{2,}(?:\s?s)?$", re.ASCII
)
_ORIGIN = {"command": "command", "git_revision": "commit", "hardware": "machine"}
_OF_RUNS = {"seed": "seed", "data": "digest of the data"}
_JINJA = Environment(undefined=StrictUndefined, trim_blocks=True, autoescape=False)
_JINJA.filters |= {
    "share": phrases.format_share,
    "ends": lambda found: phrases.format_share_interval(*found[1:3]),
    "span": phrases.format_share_interval,
    "points": phrases.format_points,
    "p": phrases.format_p_cell,
    "count": lambda value: f"{value:,}",
    "fixed": lambda value, digits: f"{float(value):.{digits}f}",
    "tiny": lambda value: f"{value:.0e}",
}


def render(text: str, page: Path) -> str:
    """Return the text of a page with every block as its file has it now.

    Raises:
        FileNotFoundError: if there is no such file.
        UndefinedError: if a template names what the file does not have.
    """

    def fill(found: re.Match[str]) -> str:
        start, name, template, end = found.groups()
        path = RESULTS / name
        values = json.loads(path.read_text(encoding="utf-8"))
        table = _JINJA.from_string(template).render(r=values).strip()
        link = Path(os.path.relpath(path, page.parent)).as_posix()
        return f"{start}{table}\n\nFrom [{name}]({link}){_describe_gaps(values)}.\n{end}"

    return _BLOCK.sub(fill, text)


def list_typed(text: str) -> list[str]:
    """Return the rows of tables outside of blocks that have a cell with a measured number."""
    left = _BLOCK.sub("", text)
    return [line for line in left.splitlines() if any(map(_MEASURED.match, _split(line)))]


def list_shown() -> list[Path]:
    """Return the pages that may have blocks."""
    return [ROOT / "README.md", *list_pages()]


def _split(line: str) -> list[str]:
    return [cell.strip() for cell in line.split("|")[1:-1]] if line.startswith("|") else []


def _describe_gaps(values: Mapping[str, Any]) -> str:
    """Return what a file does not say of where it is from; nothing where it says all."""
    missing = list(dict.fromkeys(_list_gaps(values)))
    return f", which does not say its {', '.join(missing)}" if missing else ""


def _list_gaps(values: Mapping[str, Any]) -> Iterator[str]:
    whole = {**values, **values.get("machine", {})}
    runs = [
        one
        for one in values.values()
        if isinstance(one, dict) and {"metrics", "methods", "rows"} & {*one}
    ]
    for place in runs or [whole]:
        wanted = _ORIGIN | _OF_RUNS if runs else _ORIGIN
        yield from (title for key, title in wanted.items() if key not in place)


if __name__ == "__main__":
    for shown in list_shown():
        before = shown.read_text(encoding="utf-8")
        after = render_made(render(before, shown))
        if after != before:
            shown.write_text(after, encoding="utf-8")
