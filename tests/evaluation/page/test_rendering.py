"""Pages as HTML and Markdown: every block in both, and nothing of a text is markup."""

from base64 import b64encode
from dataclasses import replace
from hashlib import sha256
from html import unescape
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from groupwise.evaluation.page import (
    Box,
    Bullets,
    Card,
    Cards,
    Cell,
    Fold,
    Heading,
    Notice,
    Page,
    Paragraph,
    Part,
    Plot,
    Plots,
    Table,
    Tables,
    list_plots,
    mark_code,
    render_html,
    render_markdown,
    write_page,
)


def draw_line(axes: object) -> None:
    axes.plot([0, 1], [0, 1])  # pyright: ignore[reportAttributeAccessIssue]


PLOT = Plot("one-line", "a plot", "from 0 to 1", draw_line, (2, 2), "its caption")
TABLE = Table("of numbers", ("name", "value"), (("first", Cell("1.5", "0–3", tag="new")),))
CARD = Card("an item", (("truth", "truth: yes"),), "said no", None, "no picture", "alt")
BLOCKS = (
    Paragraph(f"see {mark_code('a/b_c.json')} <b> *now*"),
    Heading("within"),
    Bullets(("a point",)),
    TABLE,
    Tables((Table("", ("left",), (("inner",),)),)),
    Cards((CARD,)),
    Fold("on demand", (Plots((PLOT,)), Fold("deeper", (Paragraph("at the bottom"),)))),
)


def make_page(*, notices: tuple[Notice, ...] = ()) -> Page:
    return Page(
        title="A page",
        lead="of a test",
        language="en",
        notices=notices,
        checked="All was checked.",
        boxes=(Box("findings", ("It works.",), "Findings", ("a reason",)),),
        parts=(Part("all", "All blocks", BLOCKS),),
        footer=(Paragraph("the end", ""),),
    )


def test_every_block_stands_in_both_forms() -> None:
    page = make_page()
    shown = ("within", "a point", "of numbers", "1.5", "0–3", "new", "inner", "an item", "said no")
    more = ("truth: yes", "no picture", "on demand", "its caption", "at the bottom", "a reason")
    for text in (render_html(page), render_markdown(page, folder="x")):
        body = text.rpartition("</style>")[2]
        places = {words: body.count(words) for words in (*shown, *more, "the end")}
        assert places == dict.fromkeys(places, 1)


def test_only_what_is_marked_as_code_is_markup() -> None:
    page = make_page()
    html, markdown = render_html(page), render_markdown(page, folder="x")
    assert "see <code>a/b_c.json</code> &lt;b&gt; *now*" in html
    assert r"see `a/b_c.json` &lt;b> \*now\*" in markdown
    assert "see a/b_c.json <b> *now*" in unescape(html).replace("<code>", "").replace("</code>", "")


@pytest.mark.parametrize("level", ["error", "warning", "info"])
def test_notices_come_first_and_say_their_level(level: str) -> None:
    notice = Notice(level, "Look here.", "a.json")  # pyright: ignore[reportArgumentType]
    told = {"error": "Error", "warning": "Warning", "info": "Note"}[level]
    html = render_html(make_page(notices=(notice,)))
    assert f'<li class="{level}"><b>{told}</b> Look here. <code>a.json</code></li>' in html
    assert "All was checked." not in html
    assert "All was checked." in render_html(make_page())
    markdown = render_markdown(make_page(notices=(notice,)), folder="x")
    assert markdown.index(f"> **{told}:** Look here. (`a.json`)") < markdown.index("It works.")


def test_plots_are_found_in_folds_and_saved(tmp_path: Path) -> None:
    page = make_page()
    assert list_plots(page) == [PLOT]
    html, markdown = write_page(page, tmp_path, name="test")
    assert "](test/one-line.svg)" in markdown.read_text(encoding="utf-8")
    assert b"<svg" in (tmp_path / "test/one-line.svg").read_bytes()
    assert html.read_text(encoding="utf-8") == render_html(page)


HOSTILE = (
    "`<script>x()</script>",
    "a`|<img src=x onerror=x()>|`",
    "# heading",
    "> quoted",
    "- item",
    "1. item",
    "---",
    "~~~",
    "&lt;b&gt; &#60;b>",
    "[link](javascript:x())",
    "![picture](https://example.org/a.png)",
    "two\n\n# lines\r\n<b>",
    "<!-- comment",
)


@pytest.mark.parametrize("text", HOSTILE)
def test_no_text_is_markup_of_markdown(text: str) -> None:
    """Read by a parser of Markdown: the text is what is shown, wherever it stands."""
    plain = " ".join(text.split())
    page = Page(
        title=text,
        lead=text,
        language="en",
        notices=(Notice("info", text, text),),
        checked="",
        boxes=(Box("findings", (text,), text, (text,)),),
        parts=(
            Part(
                "all",
                text,
                (
                    Paragraph(text),
                    Paragraph(mark_code(text)),
                    Heading(text),
                    Bullets((text,)),
                    Table(text, (text,), ((Cell(text, is_code=True),), (Cell(text, note=text),))),
                    Cards((Card(text, (("truth", text),), text, None, "gone", text),)),
                ),
            ),
        ),
    )
    tokens = MarkdownIt("commonmark").enable("table").parse(render_markdown(page, folder="x"))
    inner = [one for token in tokens for one in (token.children or ())]
    kinds = {token.type for token in tokens} | {one.type for one in inner}
    assert not kinds & {"html_block", "html_inline", "link_open", "image", "fence", "hr"}
    assert sum(token.type == "heading_open" for token in tokens) == 4
    assert sum(token.type == "blockquote_open" for token in tokens) == 1
    assert sum(token.type == "td_open" for token in tokens) == 2
    said = ["".join(one.content for one in t.children or ()) for t in tokens if t.children]
    assert sum(plain in one for one in said) >= 12, said


def test_a_page_loads_nothing_and_runs_only_its_own_script() -> None:
    html = render_html(make_page())
    rule = html.partition('http-equiv="Content-Security-Policy" content="')[2].partition('"')[0]
    told = dict(part.strip().split(" ", 1) for part in unescape(rule).split(";"))
    assert (told["default-src"], told["img-src"]) == ("'none'", "data:")
    sortable = render_html(replace(make_page(), is_sortable=True))
    script = sortable.partition("<script>")[2].partition("</script>")[0]
    digest = b64encode(sha256(script.encode()).digest()).decode()
    assert told["script-src"] == f"'sha256-{digest}'"
