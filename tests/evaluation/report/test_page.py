"""Pages as HTML and Markdown: every block in both, and nothing of a text is markup."""

import json
import re
from base64 import b64encode
from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from run_folders import POLICIES
from written_pages import list_plots, show_page

from groupwise.core import DataError, EvaluationError
from groupwise.evaluation.alarms import Series
from groupwise.evaluation.metrics import Metric
from groupwise.evaluation.predictions import Policies, Prediction
from groupwise.evaluation.report import page as pages
from groupwise.evaluation.report.page import Block, Cell, Page, Table
from groupwise.evaluation.report.phrases import Phrases, mark_code

LINES = tuple(
    (name, Series(name, tuple(range(len(values))), values), "#123456")
    for name, values in (("rising", (0.1, 0.2, 0.4)), ("long", (1.0,) * 50))
)
PLOTS = (
    pages.Plot("one-line", "a plot", LINES[:1], "step", are_shares=True),
    pages.Plot("two", "of two", LINES, "步"),
)
TABLE = Table("of numbers", ("name", "value"), (("first", Cell("1.5", "0–3", tag="new")),))
CARD = pages.Card("an item", (("truth", "truth: yes"),), "said no", None, "no picture")
BLOCKS = (
    Block(f"see {mark_code('a/b_c.json')} <b> *now*"),
    Block("within", "heading"),
    Block(points=("a point",)),
    TABLE,
    Block(tables=(Table("", ("left",), (("inner",),)),)),
    Block(cards=(CARD,)),
    Block("line one\nline two", "verbatim"),
    Block(
        "on demand",
        "fold",
        blocks=(Block(plots=PLOTS), Block("deeper", "fold", blocks=(Block("at the bottom"),))),
    ),
)
PAGE = Page(
    title="A page",
    lead="of a test",
    language="en",
    notices=(),
    checked="All was checked.",
    boxes=(pages.Box("findings", ("It works.",), "Findings", ("a reason",)),),
    parts=(pages.Part("all", "All blocks", BLOCKS),),
    footer=(Block("the end", "plain"),),
)


def test_every_block_stands_in_both_forms() -> None:
    shown = ("within", "a point", "of numbers", "1.5", "0–3", "new", "inner", "an item", "said no")
    more = ("truth: yes", "no picture", "on demand", "at the bottom", "a reason")
    most = ("line one", "line two", "the end")
    for text in show_page(PAGE):
        body = text.rpartition("</style>")[2]
        places = {words: body.count(words) for words in (*shown, *more, *most)}
        assert places == dict.fromkeys(places, 1)


def test_only_what_is_marked_as_code_is_markup() -> None:
    html, markdown = show_page(PAGE)
    assert "see <code>a/b_c.json</code> &lt;b&gt; *now*" in html
    assert r"see `a/b_c.json` &lt;b> \*now\*" in markdown


@pytest.mark.parametrize(
    ("level", "told"), [("error", "Error"), ("warning", "Warning"), ("info", "Note")]
)
def test_notices_come_first_and_say_their_level(level: Any, told: str) -> None:
    page = replace(PAGE, notices=(pages.Notice(level, "Look here.", "a.json"),))
    html, markdown = show_page(page)
    assert f'<li class="{level}"><b>{told}</b> Look here. <code>a.json</code></li>' in html
    assert "All was checked." not in html
    assert "All was checked." in show_page(PAGE)[0]
    assert markdown.index(f"> **{told}:** Look here. (`a.json`)") < markdown.index("It works.")


def test_plots_are_found_in_folds_saved_and_removed_when_gone(tmp_path: Path) -> None:
    assert list_plots(PAGE) == list(PLOTS)
    html, markdown = pages.write_page(PAGE, tmp_path, name="test")
    links = re.findall(r"]\((test/[^)]+)\)", markdown.read_text("utf-8"))
    assert links == ["test/one-line.svg", "test/two.svg"]
    for plot, link in zip(PLOTS, links, strict=True):
        svg = (tmp_path / link).read_bytes()
        assert svg == pages.render_svg(plot)
        assert b"<text" in svg
        assert b64encode(svg).decode() in html.read_text("utf-8")
    assert "a plot: rising 0.1 → 0.4" in markdown.read_text("utf-8")
    drawn = re.findall(r"<text[^>]*>([^<]*)</text>", pages.render_svg(PLOTS[1]).decode())
    assert {"rising", "long", "步"} <= set(drawn)
    assert "100\u00a0%" in pages.render_svg(PLOTS[0]).decode()
    (tmp_path / "test/step.json").write_text("{}")
    pages.write_page(replace(PAGE, parts=()), tmp_path, name="test")
    assert [path.name for path in (tmp_path / "test").iterdir()] == ["step.json"]


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
def test_no_text_is_markup(text: str) -> None:
    """Read by a parser of Markdown: the text is what is shown, wherever it stands."""
    plain = " ".join(text.split())
    blocks = (
        Block(text),
        Block(mark_code(text)),
        Block(text, "heading"),
        Block(points=(text,)),
        Table(text, (text,), ((Cell(text, is_code=True),), (Cell(text, note=text),))),
        Block(cards=(pages.Card(text, (("truth", text),), text, None, "gone"),)),
    )
    page = Page(
        title=text,
        lead=text,
        language="en",
        notices=(pages.Notice("info", text, text),),
        checked="",
        boxes=(pages.Box("findings", (text,), text, (text,)),),
        parts=(pages.Part("all", text, blocks),),
    )
    html, markdown = show_page(page)
    tokens = MarkdownIt("commonmark").enable("table").parse(markdown)
    inner = [one for token in tokens for one in (token.children or ())]
    kinds = {token.type for token in tokens} | {one.type for one in inner}
    assert not kinds & {"html_block", "html_inline", "link_open", "image", "fence", "hr"}
    assert sum(token.type == "heading_open" for token in tokens) == 4
    assert sum(token.type == "blockquote_open" for token in tokens) == 1
    assert sum(token.type == "td_open" for token in tokens) == 2
    said = ["".join(one.content for one in t.children or ()) for t in tokens if t.children]
    assert sum(plain in one for one in said) >= 12, said
    tags = list[str]()
    reader = HTMLParser()
    reader.handle_starttag = lambda tag, attrs: tags.append(tag)  # pyright: ignore[reportAttributeAccessIssue]
    reader.feed(html.rpartition("</style>")[2])
    assert not {"script", "img"} & set(tags)
    assert tags.count("b") == 1  # of the notice's level


def test_what_commands_a_terminal_or_turns_text_around_is_seen() -> None:
    page = replace(PAGE, lead="\x1b[31mred\x1b[0m \u202eleft \ue000open {0}")
    for text in show_page(page):
        assert not set(text) & {"\x1b", "\u202e", "\ue000"}
        assert "␛[31mred" in text.replace("\\[", "[")


def test_a_page_loads_nothing_and_runs_only_its_own_script() -> None:
    html, _ = show_page(PAGE)
    rule = html.partition('http-equiv="Content-Security-Policy" content="')[2].partition('"')[0]
    told = dict(part.strip().split(" ", 1) for part in unescape(rule).split(";"))
    assert (told["default-src"], told["img-src"]) == ("'none'", "data:")
    assert "<script" not in html
    sortable, _ = show_page(replace(PAGE, is_sortable=True))
    script = sortable.partition("<script>")[2].partition("</script>")[0]
    digest = b64encode(sha256(script.encode()).digest()).decode()
    assert told["script-src"] == f"'sha256-{digest}'"


def test_cells_stay_cells() -> None:
    assert pages.escape_cell(" 94.2\u00a0% ") == "94.2\u00a0%"
    assert pages.escape_cell("a|b\n*c* <d>") == r"a\|b \*c\* &lt;d>"
    with pytest.raises(ValueError, match="cells in the table 'odd'"):
        Table("odd", ("a",), (("1", "2"),))


LONG = (
    "设备运行状态异常需要现场工程师在二十四小时之内到场检查",
    "the device was returned as it is",
)


@pytest.mark.parametrize("labels", [("合规", "违规"), LONG])
def test_a_confusion_names_every_label_whole_and_keeps_its_columns_narrow(
    labels: tuple[str, str], make_table: Callable[..., list[Prediction]]
) -> None:
    yes, no = labels
    items = make_table([(yes, yes)] * 3 + [(yes, no), (no, None)] + [(no, no)] * 5)
    table = pages.tabulate_confusion("", items, labels, Phrases("zh"))
    assert table.rows == ((yes, "3", "1", "0"), (no, "0", "5", "1"))
    assert max(map(len, table.head[1:])) <= 12
    assert pages.tabulate_confusion("", [], labels, Phrases("en")).rows[0] == (yes, "0", "0", "0")


VERDICTS = ("通过", "不通过", "待定")
ANSWERS = st.tuples(st.sampled_from(VERDICTS), st.sampled_from([*VERDICTS, None]))


@given(rows=st.lists(ANSWERS, max_size=40))
def test_every_item_is_counted_once_and_invalid_is_no_class(rows: list[Any]) -> None:
    items = [
        Prediction(str(n), "c", "test", "p", truth, answer, "" if answer else "invalid")
        for n, (truth, answer) in enumerate(rows)
    ]
    table = pages.tabulate_confusion("", items, VERDICTS, Phrases("zh"))
    counts = [[int(str(one)) for one in row[1:]] for row in table.rows]
    assert sum(map(sum, counts)) == len(rows)
    assert sum(row[-1] for row in counts) == sum(answer is None for _, answer in rows)
    assert sum(counts[n][n] for n in range(3)) == sum(truth == answer for truth, answer in rows)


def make_metric(name: str, value: float, n: int = 4, split: str = "test") -> Metric:
    return Metric(name, split, value, value / 2, (1 + value) / 2, n, "digest")


def test_policies_stand_in_their_order_and_gaps_are_dashes() -> None:
    metrics = [
        make_metric("grpo/missed", 0.25),
        make_metric("grpo/accuracy", 0.5, n=8),
        make_metric("majority/accuracy", 0.75, n=7),
        make_metric("own/missed", 1.0, n=9),
    ]
    phrases = Phrases("en", policies=Policies(POLICIES))
    columns = {"missed": "missed", "accuracy": "right"}
    table = pages.tabulate_policies(metrics, columns, title="all", phrases=phrases)
    assert (table.title, table.head) == ("all", ("Policy", "missed", "right", "n"))
    heads = [(cell.text, cell.note) for row in table.rows if isinstance(cell := row[0], Cell)]
    assert heads == [
        ("Majority label", "\ue000majority\ue001"),
        ("GRPO", "\ue000grpo\ue001 · the trained policy"),
        ("own", "\ue000own\ue001"),
    ]
    assert [[str(cell).replace("\u00a0", " ") for cell in row[1:]] for row in table.rows] == [
        ["–", "75.0 %\n37.5–87.5 %", "7"],
        ["25.0 %\n12.5–62.5 %, n = 4", "50.0 %\n25.0–75.0 %", "8"],
        ["100.0 %\n50.0–100.0 %", "–", "9"],
    ]
    assert pages.tabulate_metrics([("none", {})], {"a": "A"}, head="").rows == (("none", "–", "–"),)
    with pytest.raises(EvaluationError, match="dev, test"):
        pages.tabulate_policies(
            [*metrics, make_metric("a/b", 0.1, split="dev")], {}, phrases=phrases
        )
    assert pages.describe_metric(metrics[0]).replace("\u00a0", " ") == "25.0 % (12.5–62.5 %)"


WORDS = st.text(max_size=8)


@st.composite
def draw_table(draw: st.DrawFn) -> Table:
    head = tuple(draw(st.lists(WORDS, min_size=1, max_size=3)))
    row = st.tuples(*[WORDS] * len(head))
    return Table(draw(WORDS), head, tuple(draw(st.lists(row, max_size=3))))


TABLES = st.lists(draw_table(), max_size=2).map(tuple)


@given(sections=st.lists(st.builds(pages.Section, WORDS, WORDS, TABLES, st.booleans()), max_size=3))
def test_what_is_written_is_read(tmp_path_factory: pytest.TempPathFactory, sections: Any) -> None:
    path = tmp_path_factory.mktemp("sections") / "sections.json"
    pages.write_sections(path, sections)
    assert pages.read_sections(path) == tuple(sections)


GOOD: dict[str, Any] = {"title": "", "head": ["x", "y"], "rows": [["1", "2"]]}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "[1]",
        '[{"text": "no title"}]',
        '[{"title": "a", "titel": "b"}]',
        *(
            json.dumps([{"title": "a", "tables": [{**GOOD, **change}]}])
            for change in ({"rows": [["1", 2]]}, {"rows": [["1"]]}, {"head": [], "rows": []})
        ),
    ],
)
def test_damaged_sections_are_an_error_of_one_line_that_names_the_file(
    tmp_path: Path, text: str
) -> None:
    path = tmp_path / "sections.json"
    with pytest.raises(DataError, match="cannot read"):
        pages.read_sections(path)
    tiles = [{"value": "1 %", "text": "of an earlier version"}]
    path.write_text(json.dumps([{"title": "a", "tables": [GOOD], "tiles": tiles}]))
    assert len(pages.read_sections(path)) == 1
    path.write_text(text)
    with pytest.raises((DataError, EvaluationError), match=r"sections\.json") as caught:
        pages.read_sections(path)
    assert len(str(caught.value).splitlines()) == 1
