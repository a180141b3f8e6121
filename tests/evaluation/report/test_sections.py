"""A recipe's own sections: kept as a file, shown by both forms of a report, never as markup."""

import json
import re
import shutil
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from run_folders import POLICIES

from groupwise.core import DataError, EvaluationError
from groupwise.evaluation import (
    Metric,
    Policies,
    Section,
    Table,
    Tile,
    Words,
    describe_metric,
    read_sections,
    tabulate_policies,
    tabulate_trainable,
    write_sections,
)
from groupwise.evaluation.report import build_report, render_html, render_markdown

MANY = Section(
    "按任务 <i>",
    tables=(
        Table("接地线", ("policy", "missed|x"), (("cell-a1", "cell-a2"), ("cell-a3", "cell-a4"))),
        Table("<i>second</i>", ("policy", "score"), (("cell-b1", "cell-b2"),)),
    ),
)
ONE = Section(
    "Missed defects",
    "After GRPO, 25.0 % & <script>alert(1)</script> | 漏检.",
    (Table("", ("policy", "missed"), (("<script>cell-c1</script>", "1|2"),)),),
)
WORDS = st.text(max_size=8)


@st.composite
def draw_table(draw: st.DrawFn) -> Table:
    head = tuple(draw(st.lists(WORDS, min_size=1, max_size=3)))
    row = st.tuples(*[WORDS] * len(head))
    return Table(draw(WORDS), head, tuple(draw(st.lists(row, max_size=3))))


TILES = st.lists(st.builds(Tile, WORDS, WORDS, WORDS), max_size=2).map(tuple)
SECTIONS = st.lists(
    st.builds(Section, WORDS, WORDS, st.lists(draw_table(), max_size=2).map(tuple), TILES),
    max_size=3,
)


@given(sections=SECTIONS)
def test_what_is_written_is_read(tmp_path_factory: pytest.TempPathFactory, sections: Any) -> None:
    path = tmp_path_factory.mktemp("sections") / "sections.json"
    write_sections(path, sections)
    assert read_sections(path) == tuple(sections)


def render_run(folder: Path, *sections: Section) -> tuple[str, str]:
    write_sections(folder / "evaluate" / "sections.json", sections)
    report = build_report(folder)
    return render_html(report), render_markdown(report)


def test_both_forms_hold_every_cell_once(tmp_path: Path) -> None:
    for text in render_run(tmp_path, ONE, MANY):
        cells = [f"cell-{place}" for place in ("a1", "a2", "a3", "a4", "b1", "b2", "c1")]
        assert {cell: text.count(cell) for cell in cells} == dict.fromkeys(cells, 1)


def test_nothing_of_a_section_is_markup(tmp_path: Path) -> None:
    html, markdown = render_run(tmp_path, ONE, MANY)
    assert "<script" not in html
    assert "<script" not in markdown
    assert "<i>" not in html
    for words in ("<script>alert(1)</script> | 漏检", "<i>second</i>", "按任务 <i>", "missed|x"):
        assert words in unescape(html)
    (row,) = [line for line in markdown.splitlines() if "cell-c1" in line]
    assert row == r"| &lt;script>cell-c1&lt;/script> | 1\|2 |"


def test_a_note_of_a_cell_follows_its_value(tmp_path: Path) -> None:
    table = Table("", ("policy", "missed"), (("GRPO", "25.0 %\n<12.5>"), ("SFT", "7")))
    html, markdown = render_run(tmp_path, Section("a", tables=(table,)))
    assert "<td>25.0 %<small>&lt;12.5&gt;</small></td>" in html
    assert "<td>7</td>" in html
    assert "| GRPO | 25.0 % (&lt;12.5>) |\n| SFT | 7 |\n" in markdown


def test_without_tiles_they_stand_behind_accuracy_each_with_its_own_link(tmp_path: Path) -> None:
    html, markdown = render_run(tmp_path, ONE, MANY)
    order = [html.index(part) for part in ("<h2>Accuracy", "<h2>Missed", "<h2>按任务")]
    assert order == sorted(order)
    order = [markdown.index(part) for part in ("## Accuracy", "## Missed", "## 按任务")]
    assert order == sorted(order)
    navigation = html.partition("<nav")[2].partition("</nav>")[0]
    links = re.findall(r'href="#([^"]+)">([^<]+)<', navigation)
    names = [name for _, name in links]
    shown = ["Accuracy", "Missed defects", "按任务 &lt;i&gt;"]
    assert [name for name in names if name in shown] == shown
    for anchor, _ in links:
        assert re.fullmatch(r"[a-z0-9-]+", anchor)
        assert html.count(f'id="{anchor}"') == 1


def test_a_section_of_a_language_is_in_that_report_alone(tmp_path: Path) -> None:
    own = Section("Mine", "English text", language="en"), Section("我的", language="zh")
    html, markdown = render_run(tmp_path, *own, Section("both"))
    for said in ("Mine", "English text", "both"):
        assert said in html
        assert said in markdown
    assert "我的" not in html
    chinese = render_html(build_report(tmp_path), language="zh")
    assert "我的" in chinese
    assert "both" in chinese
    assert "English text" not in chinese


def test_tiles_of_sections_come_before_the_accuracy(full_run: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(full_run, run)
    own = [Tile("1.5 %", "missed <i>", "n = 3"), Tile("7", "second")]
    other = Section("zh", tiles=(Tile("?", "of the other language"),), language="zh")
    sections = Section("a", tiles=(own[0],)), ONE, other, Section("b", tiles=(own[1],))
    html, _ = render_run(run, *sections)
    assert "of the other language" not in html
    tiles = html.partition('<div class="tiles">')[2]
    tile = r'<div class="tile card( first)?(?: good)?"><b>([^<]+)</b><span>([^<]+)<'
    found = re.findall(tile, tiles)
    assert [row[:2] for row in found[:2]] == [(" first", "1.5 %"), ("", "7")]
    assert unescape(found[0][2]) == "missed <i>"
    assert found[2][2].startswith("Accuracy of GRPO")
    bare, _ = render_run(run, ONE)
    assert re.findall(tile, bare)[0] == (" first", *found[2][1:])


def test_only_several_tables_are_folded(tmp_path: Path) -> None:
    html, _ = render_run(tmp_path, ONE, MANY)
    before = {name: html.partition(f"cell-{name}")[0] for name in ("a1", "b1", "c1")}
    depth = {
        name: text.count("<details>") - text.count("</details>") for name, text in before.items()
    }
    assert depth == {"a1": 1, "b1": 1, "c1": 0}


def test_a_run_without_the_file_lacks_nothing(tmp_path: Path) -> None:
    report = build_report(tmp_path)
    assert report.files.sections == ()
    assert not [name for name in report.files.absent if "sections" in name]
    assert "sections.json" not in render_html(report)


GOOD: dict[str, Any] = {
    "title": "a",
    "text": "",
    "tables": [{"title": "", "head": ["x", "y"], "rows": [["1", "2"]]}],
}


def change_table(**named: Any) -> str:
    return json.dumps([{**GOOD, "tables": [{**GOOD["tables"][0], **named}]}])


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "[1]",
        '[{"text": "no title"}]',
        json.dumps([{**GOOD, "titel": "b"}]),
        change_table(rows=[["1", 2]]),
        change_table(rows=[["1"]]),
        change_table(head=[], rows=[]),
    ],
)
def test_a_damaged_file_is_an_error_of_one_line_that_names_it(tmp_path: Path, text: str) -> None:
    path = tmp_path / "evaluate" / "sections.json"
    write_sections(path, [])
    path.write_text(json.dumps([GOOD]))
    assert len(build_report(tmp_path).files.sections) == 1
    path.write_text(text)
    with pytest.raises((DataError, EvaluationError), match=r"sections\.json") as caught:
        build_report(tmp_path)
    assert len(str(caught.value).splitlines()) == 1


def test_a_file_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot read"):
        read_sections(tmp_path / "sections.json")


def make_metric(name: str, value: float, n: int = 4, split: str = "test") -> Metric:
    return Metric(name, split, value, value / 2, (1 + value) / 2, n, "digest")


def test_policies_stand_in_their_order_and_gaps_are_dashes() -> None:
    metrics = [
        make_metric("grpo/missed", 0.25),
        make_metric("grpo/accuracy", 0.5, n=8),
        make_metric("majority/accuracy", 0.75, n=7),
        make_metric("own/accuracy", 1.0, n=8),
    ]
    table = tabulate_policies(
        metrics,
        {"missed": "missed", "right": "accuracy"},
        title="all",
        words=Words("en", policies=Policies(POLICIES)),
    )
    assert (table.title, table.head) == ("all", ("Policy", "missed", "right", "n"))
    assert [[cell.replace("\u00a0", " ") for cell in row] for row in table.rows] == [
        ["Majority label", "–", "75.0 %\n37.5–87.5 %", "7"],
        ["GRPO", "25.0 %\n12.5–62.5 %", "50.0 %\n25.0–75.0 %", "8"],
        ["own", "–", "100.0 %\n50.0–100.0 %", "8"],
    ]


def test_numbers_of_two_splits_are_not_mixed() -> None:
    metrics = [make_metric("a/accuracy", 0.5), make_metric("a/accuracy", 0.6, split="dev")]
    with pytest.raises(EvaluationError, match="dev, test"):
        tabulate_policies(metrics, {"right": "accuracy"}, words=Words("en"))


def test_a_metric_in_words() -> None:
    found = describe_metric(make_metric("grpo/missed", 0.25))
    assert found.replace("\u00a0", " ") == "25.0 % (12.5–62.5 %)"


def test_what_trained_has_a_total(tmp_path: Path) -> None:
    path = tmp_path / "trainable.json"
    rows = [
        {"part": "vision", "num_trainable": 0, "num_frozen": 62880},
        {"part": "language block 2", "num_trainable": 28672, "num_frozen": 430784},
    ]
    path.write_text(json.dumps(rows))
    table = tabulate_trainable(path, words=Words("en"))
    assert table.head == ("Part", "Trainable", "Frozen")
    assert [tuple(cell.replace("\u202f", " ") for cell in row) for row in table.rows] == [
        ("vision", "0", "62 880"),
        ("language block 2", "28 672", "430 784"),
        ("total", "28 672", "493 664"),
    ]
    path.write_text('[{"part": "vision"}]')
    with pytest.raises(EvaluationError, match=r"trainable\.json"):
        tabulate_trainable(path, words=Words("en"))
