"""The page as HTML: what is shown of an answer, in the words of one language."""

import json
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.responses import HTMLResponse

from groupwise.evaluation import report
from groupwise.evaluation.predictions import Language
from groupwise.evaluation.report.page import replace_controls
from groupwise.evaluation.report.phrases import format_share
from groupwise.serving.review.languages import load_words

_STATIC = Path(__file__).with_name("static")
_TYPES = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
LONG = 600
"""Characters of a text that is shown in a box of its own, which scrolls."""


def render(template: str, language: Language, *, status: int = 200, **values: Any) -> HTMLResponse:
    """Return a page, or a part of one."""
    shown = _load_environment().get_template(f"{template}.html.j2")
    phrases = load_words(language)
    text = shown.render(label=phrases.say, language=language, long=LONG, **values)
    return HTMLResponse(text.encode("utf-8", "replace"), status)


@cache
def load_static() -> dict[str, tuple[bytes, str]]:
    """Return content and media type of what the page loads, by name."""
    style = Path(report.__file__).parent / "templates" / "page.css"
    paths = [style, *(path for path in _STATIC.iterdir() if path.suffix in _TYPES)]
    return {path.name: (path.read_bytes(), _TYPES[path.suffix]) for path in paths}


@cache
def _load_environment() -> Environment:
    environment: Any = Environment(
        loader=PackageLoader("groupwise.serving.review"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(share=format_share, seen=_write_seen)
    return environment


def _write_seen(value: Any) -> str:
    """Return a value of a row as text in which nothing hides; what is no text is JSON."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return replace_controls(text)
