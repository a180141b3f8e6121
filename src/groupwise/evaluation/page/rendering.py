"""Rendering a page: one HTML file that needs nothing else, and Markdown with its pictures.

Takes what a page says and lays it out; it changes no number and reads no file but pictures.
"""

import base64
import hashlib
import io
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from groupwise.core import DataError, open_picture, write_text
from groupwise.evaluation.page.blocks import Block, Cards, Fold, Page, Plot, Plots
from groupwise.evaluation.page.canvas import render_both, render_svg
from groupwise.evaluation.page.words import CODE, Words

PICTURE_WIDTH = 880
_JPEG_QUALITY = 78
_TEMPLATES = Path(__file__).with_name("templates")
_FORMS = (".jpg", ".png", ".svg")
_MARKS = "\\`*_|[]$"
_ENTITY = re.compile(r"&(?=#?\w+;)")
_BLOCK_START = re.compile(r"(?=#{1,6}(?:\s|$)|>|[-+](?:\s|$)|-{3}|~{3})|^\d{1,9}(?=[.)](?:\s|$))")
"""Before what would begin a heading, a quotation, a list, a rule or a fence of Markdown."""
_CODE = re.compile(f"{CODE[0]}([^{CODE[0]}{CODE[1]}]*){CODE[1]}")
_CONTROLS: dict[int, int] = {
    **{code: 0x2400 + code for code in range(0x20) if code not in (0x09, 0x0A)},
    **dict.fromkeys((*range(0x7F, 0xA0), *range(0x202A, 0x202F), *range(0x2066, 0x206A)), 0xFFFD),
    **dict.fromkeys(map(ord, CODE), 0xFFFD),
}
"""What stands for characters that command a terminal, turn a text around or would mark code."""


def render_html(page: Page) -> str:
    """Return a page with its style, plots and pictures inside."""
    plots = {one.name: render_svg(one.draw, one.size) for one in list_plots(page)}
    return _render_html(page, plots, _shrink_pictures(page))


def _render_html(page: Page, plots: Mapping[str, bytes], pictures: Mapping[Path, bytes]) -> str:
    return _render(
        "page.html.j2",
        page,
        plots={name: _to_data_uri(svg, "svg+xml") for name, svg in plots.items()},
        pictures={path: _to_data_uri(jpeg, "jpeg") for path, jpeg in pictures.items()},
    )


def render_markdown(page: Page, *, folder: str) -> str:
    """Return a page as Markdown; its plots and pictures are files in ``folder/``."""
    return _render_markdown(page, folder, _shrink_pictures(page))


def _render_markdown(page: Page, folder: str, pictures: Iterable[Path]) -> str:
    return _render(
        "page.md.j2",
        page,
        plots={one.name: f"{folder}/{one.name}.{page.plot_form}" for one in list_plots(page)},
        pictures={path: f"{folder}/{_name_picture(n)}" for n, path in enumerate(pictures)},
    )


def write_page(page: Page, folder: Path, *, name: str) -> tuple[Path, Path]:
    """Write ``NAME.html``, ``NAME.md`` and its plots and pictures in ``NAME/`` into a folder.

    Plots and pictures that an earlier page left there and this one does not name are removed.

    Returns:
        The paths of HTML and Markdown.
    """
    html, markdown, own = folder / f"{name}.html", folder / f"{name}.md", folder / name
    plots, files = _draw_plots(page)
    pictures = _shrink_pictures(page)
    files |= {_name_picture(n): jpeg for n, jpeg in enumerate(pictures.values())}
    own.mkdir(parents=True, exist_ok=True)
    for file, content in files.items():
        (own / file).write_bytes(content)
    for path in own.iterdir():
        if path.suffix in _FORMS and path.name not in files:
            path.unlink()
    write_text(html, _render_html(page, plots, pictures))
    write_text(markdown, _render_markdown(page, name, pictures))
    return html, markdown


def _draw_plots(page: Page) -> tuple[dict[str, bytes], dict[str, bytes]]:
    """Return each plot as an SVG by its name, and by its file in the form of the page."""
    plots: dict[str, bytes] = {}
    files: dict[str, bytes] = {}
    for one in list_plots(page):
        if page.plot_form == "png":
            plots[one.name], drawn = render_both(one.draw, one.size)
        else:
            plots[one.name] = drawn = render_svg(one.draw, one.size)
        files[f"{one.name}.{page.plot_form}"] = drawn
    return plots, files


def list_plots(page: Page) -> list[Plot]:
    """Return every plot of a page in its order."""
    return [plot for one in _blocks(page) if isinstance(one, Plots) for plot in one.plots]


def _shrink_pictures(page: Page) -> dict[Path, bytes]:
    """Return each picture of a page that can be opened, once, in order."""
    cards = (card for one in _blocks(page) if isinstance(one, Cards) for card in one.cards)
    paths = dict.fromkeys(card.picture for card in cards if card.picture is not None)
    return {path: jpeg for path in paths if (jpeg := _shrink(path))}


def _blocks(page: Page) -> Iterator[Block]:
    """Yield every block of a page, those of a fold in its place."""
    waiting = [block for part in page.parts for block in part.blocks]
    while waiting:
        block = waiting.pop(0)
        if isinstance(block, Fold):
            waiting = [*block.blocks, *waiting]
        else:
            yield block


def _name_picture(place: int) -> str:
    return f"picture-{place + 1:02d}.jpg"


def _shrink(path: Path) -> bytes | None:
    """Return a picture as a JPEG at most 880 pixels wide, None if it cannot be opened."""
    try:
        picture = open_picture(path)
    except DataError:
        return None
    picture.thumbnail((PICTURE_WIDTH, PICTURE_WIDTH))
    buffer = io.BytesIO()
    picture.save(buffer, "JPEG", quality=_JPEG_QUALITY, optimize=True)
    return buffer.getvalue()


def _to_data_uri(content: bytes, kind: str) -> str:
    return f"data:image/{kind};base64,{base64.b64encode(content).decode()}"


@cache
def _load_environment(is_html: bool) -> Environment:
    environment: Any = Environment(
        loader=PackageLoader("groupwise.evaluation.page"),
        autoescape=is_html,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(rich=_mark_html if is_html else _mark_markdown)
    environment.filters.update(
        cell=escape_cell, code=write_code, form=lambda one: type(one).__name__
    )
    return environment


def _render(
    template: str, page: Page, *, plots: Mapping[str, str], pictures: Mapping[Path, str]
) -> str:
    label: Callable[..., str] = Words(page.language).label
    environment = _load_environment(template.endswith(".html.j2"))
    script = (_TEMPLATES / "sort.js").read_text(encoding="utf-8")
    text = environment.get_template(template).render(
        page=page,
        label=label,
        plots=plots,
        pictures=pictures,
        script=Markup(script),
        content_policy=_write_content_policy(script),
    )
    return replace_controls(text)


def _write_content_policy(script: str) -> str:
    """Return what a page may load: what stands in it, and of scripts the one of ours."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    allowed = f"img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    return f"default-src 'none'; {allowed}; base-uri 'none'; form-action 'none'"


def _mark_html(text: str) -> Markup:
    """Return escaped text with its code marked."""
    return Markup(_CODE.sub(r"<code>\1</code>", str(escape(text))))


def _mark_markdown(text: str) -> str:
    """Return text that is shown as it is, but for its code; no code ends early or spans lines."""
    parts = [
        write_code(part) if place % 2 else _escape(part)
        for place, part in enumerate(_CODE.split(text))
    ]
    return _begin_no_block("".join(parts).strip(" "))


def replace_controls(text: str) -> str:
    """Return text whose characters that command a terminal or turn a text around are seen."""
    return text.translate(_CONTROLS)


def write_code(text: str) -> str:
    """Return text as code, or as it is where code would end within it or a cell would."""
    return _escape(text) if set(text) & set("`|\r\n") or not text.strip() else f"`{text}`"


def escape_cell(text: object) -> str:
    """Return text that stays in one Markdown table cell and is shown as it is."""
    return _begin_no_block(_escape(str(text)).strip(" "))


def _begin_no_block(text: str) -> str:
    """Return a line that is a paragraph, whatever it begins with."""
    begins = _BLOCK_START.match(text)
    return text if begins is None else f"{begins[0]}\\{text[begins.end() :]}"


def _escape(text: str) -> str:
    clean = re.sub(r"[ \t\r\n]+", " ", text)
    clean = _ENTITY.sub("&amp;", clean)
    for mark in _MARKS:
        clean = clean.replace(mark, f"\\{mark}")
    return clean.replace("<", "&lt;")
