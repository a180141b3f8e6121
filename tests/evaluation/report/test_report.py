import io
import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from PIL import Image

from groupwise.core import DataError, EvaluationError, digest_file, write_json
from groupwise.evaluation import (
    MARKS,
    Prediction,
    count_confusion,
    read_metrics,
    write_metrics,
    write_predictions,
)
from groupwise.evaluation.page import LANGUAGES, list_plots
from groupwise.evaluation.page.canvas import render_both, render_svg
from groupwise.evaluation.page.numbers import format_share
from groupwise.evaluation.page.plots import choose_window, smooth
from groupwise.evaluation.page.rendering import escape_cell
from groupwise.evaluation.report import (
    build_report,
    lay_out,
    render_html,
    render_markdown,
    write_report,
)
from groupwise.evaluation.report.items import choose_mistakes

POLICIES = ["majority", "text_only", "picture_only", "prompt", "sft", "sft_control", "grpo"]
FILES = (
    "manifest.json",
    "evaluate/predictions.jsonl",
    "evaluate/metrics.json",
    "evaluate/comparisons.json",
    "audit/audit.json",
)
"""What the report of any run is made from."""
TRAINING = ("sft/metrics.jsonl", "grpo/metrics.jsonl", "grpo/on_policy.json")
VOID = {"meta", "img", "br", "link", "input"}


class PageReader(HTMLParser):
    """Collects tags, addresses and text, and checks that every tag is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open[-1:] != ["style"]:
            self.texts.append(data)


def read_page(html: str) -> PageReader:
    reader = PageReader()
    reader.feed(html)
    assert reader.open == []
    return reader


@pytest.fixture(scope="module")
def written(full_run: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Both reports of a copy of the full run."""
    run = tmp_path_factory.mktemp("written") / "demo"
    shutil.copytree(full_run, run)
    return write_report(run)


@pytest.fixture
def run_copy(full_run: Path, tmp_path: Path) -> Path:
    ignore = shutil.ignore_patterns("pictures")
    return Path(shutil.copytree(full_run, tmp_path / "run", ignore=ignore))


def test_page_is_one_closed_file_that_loads_nothing(written: tuple[Path, Path]) -> None:
    page = read_page(written[0].read_text(encoding="utf-8"))
    loaded = [attrs[key] or "" for _, attrs in page.tags for key in ("src", "href") if key in attrs]
    assert loaded
    assert all(address.startswith(("data:image/", "#")) for address in loaded)
    assert not {"script", "link", "iframe"} & {tag for tag, _ in page.tags}
    assert "url(" not in written[0].read_text(encoding="utf-8")
    anchors = {address[1:] for address in loaded if address.startswith("#")}
    assert anchors <= {attrs.get("id") for _, attrs in page.tags}


def test_page_suits_phones_paper_and_the_dark(written: tuple[Path, Path]) -> None:
    html = written[0].read_text(encoding="utf-8")
    assert '<meta name="viewport" content="width=device-width, initial-scale=1">' in html
    assert "@media print" in html
    assert "prefers-color-scheme: dark" in html
    assert all(attrs.get("alt") for tag, attrs in read_page(html).tags if tag == "img"), (
        "a picture has no text for those who do not see it"
    )


def test_warnings_stand_before_the_first_number(written: tuple[Path, Path]) -> None:
    for path in written:
        text = path.read_text(encoding="utf-8")
        warning = text.index("nearly like one of train")
        assert warning < text.index("is right in") < text.rindex("Paired comparisons")


def test_headline_has_every_policy_in_order_with_the_numbers_of_the_file(
    full_run: Path, written: tuple[Path, Path]
) -> None:
    metrics = {m.name: m for m in read_metrics(full_run / "evaluate/metrics.json")}
    table = written[1].read_text(encoding="utf-8").split("### test")[1].split("\n\n")[1]
    rows = table.splitlines()[2:]
    assert [re.search(r"`(\w+)`", row)[1] for row in rows] == POLICIES  # pyright: ignore
    for policy, row in zip(POLICIES, rows, strict=True):
        metric = metrics[f"{policy}/accuracy"]
        assert format_share(metric.value) in row
        assert metric.split_digest[:8] in row
        assert f"| {metric.n} |" in row


def test_changed_file_changes_the_report(run_copy: Path) -> None:
    path = run_copy / "evaluate/metrics.json"
    changed = [
        replace(m, value=0.4242, low=0.4, high=0.45) if m.name == "grpo/accuracy" else m
        for m in read_metrics(path)
    ]
    write_metrics(path, changed)
    assert render_markdown(build_report(run_copy)).count("42.4\u00a0%") >= 2


def test_chinese_and_markup_in_task_texts_are_shown_as_they_are(
    run_copy: Path, make_prediction: Callable[..., Prediction]
) -> None:
    task = "<script>alert('x')</script> | 整理*预算*表"
    wrong = make_prediction("on-task", "off-task", fields={"task": task}, text="a|b<c")
    write_predictions(run_copy / "evaluate/predictions.jsonl", [wrong])
    report = build_report(run_copy)
    html = render_html(report)
    assert "<script" not in html
    assert task in "".join(read_page(html).texts)
    markdown = render_markdown(report)
    assert r"&lt;script>alert('x')&lt;/script> \| 整理\*预算\*表" in markdown
    assert r"a\|b&lt;c" in markdown


def test_markdown_shows_files_that_are_there(written: tuple[Path, Path]) -> None:
    markdown = written[1]
    links = re.findall(r"!\[[^\]]+\]\(([^)]+)\)", markdown.read_text(encoding="utf-8"))
    assert len([link for link in links if link.endswith(".jpg")]) == 10 + 3 + 3
    assert {
        "report/accuracy-test.png",
        "report/learning-curve-grpo.png",
        "report/loss.png",
        "report/reward-parts-grpo.png",
        "report/signal-grpo-kl.png",
        "report/signal-grpo-entropy.png",
        *(f"report/reliability-{policy}.png" for policy in POLICIES),
    } <= set(links)
    for link in links:
        with Image.open(markdown.parent / link) as picture:
            picture.load()
            assert picture.width > 300


def test_tables_of_the_markdown_are_rectangular(written: tuple[Path, Path]) -> None:
    for block in written[1].read_text(encoding="utf-8").split("\n\n"):
        lines = [line for line in block.splitlines() if line.startswith("|")]
        widths = {len(re.findall(r"(?<!\\)\|", line)) for line in lines}
        assert len(widths) <= 1, block
        assert not lines or re.fullmatch(r"\|( -+:? \|)+", lines[1]), block


def test_report_of_an_empty_folder_says_what_is_missing(tmp_path: Path) -> None:
    html, markdown = write_report(tmp_path)
    text = "".join(read_page(html.read_text(encoding="utf-8")).texts)
    for name in FILES:
        assert f"Not there: {name}" in text
        assert f"*Not there: `{name}`" in markdown.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", [*FILES, *TRAINING])
def test_each_file_may_be_missing_and_is_then_named(run_copy: Path, name: str) -> None:
    (run_copy / name).unlink()
    report = build_report(run_copy)
    assert list(report.files.absent) == [name]
    assert name in render_markdown(report)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("manifest.json", "{"),
        ("audit/audit.json", "[]"),
        ("evaluate/metrics.json", "{}x"),
        ("evaluate/comparisons.json", "[1]"),
        ("evaluate/predictions.jsonl", '{"a": 1}\n'),
        ("grpo/metrics.jsonl", "nonsense\n{}\n"),
        ("grpo/warnings.json", "{}"),
    ],
)
def test_broken_file_is_an_error_that_names_it(run_copy: Path, name: str, text: str) -> None:
    (run_copy / name).write_text(text)
    with pytest.raises((EvaluationError, DataError), match=re.escape(name)):
        build_report(run_copy)


def test_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(EvaluationError, match="there is no run at"):
        build_report(tmp_path / "nowhere")


def test_other_policies_and_splits_work(
    tmp_path: Path, make_table: Callable[..., list[Prediction]]
) -> None:
    from groupwise.evaluation import compute_metrics

    rows = [("通过", "通过"), ("不通过", "通过"), ("不通过", None)]
    items = [
        item
        for split in ("dev", "test")
        for item in make_table(rows, policy="我的策略", split=split)
    ]
    write_predictions(tmp_path / "evaluate/predictions.jsonl", items)
    write_metrics(
        tmp_path / "evaluate/metrics.json", compute_metrics(items, labels=("通过", "不通过"))
    )
    report = build_report(tmp_path)
    assert list(report.metrics) == ["test", "dev"]
    assert "| 不通过 | 0 | 1 (50.0\u00a0%) | 1 (50.0\u00a0%) |" in render_markdown(report)
    assert "我的策略" in render_html(report)


def test_open_answers_have_no_confusion_and_keep_their_latency(
    tmp_path: Path, make_table: Callable[..., list[Prediction]]
) -> None:
    from groupwise.evaluation import compute_metrics

    table = make_table([(str(n), str(n + n % 2)) for n in range(30)], policy="grpo", split="test")
    items = [replace(item, latency_s=0.5) for item in table]
    write_predictions(tmp_path / "evaluate/predictions.jsonl", items)
    write_metrics(tmp_path / "evaluate/metrics.json", compute_metrics(items, labels=()))
    report = build_report(tmp_path)
    page = render_markdown(report)
    assert "## Answers" in page
    assert "Latency" in page
    assert "Truth" not in page


def test_plots_are_the_same_bytes_every_time(full_run: Path) -> None:
    plots = {plot.name: plot for plot in list_plots(lay_out(build_report(full_run)))}
    assert len(plots) == len(list_plots(lay_out(build_report(full_run))))
    for name in ("learning-curve-grpo", "reliability-grpo"):
        plot = plots[name]
        svg = render_svg(plot.draw, plot.size)
        assert svg == render_svg(plot.draw, plot.size)
        assert b"<text" in svg
        both = render_both(plot.draw, plot.size)
        assert both[0] == svg
        with Image.open(io.BytesIO(both[1])) as picture:
            assert picture.width == int(plot.size[0] * 170)


def test_the_confusion_has_the_counts_of_each_truth(full_run: Path) -> None:
    report = build_report(full_run)
    on, _ = count_confusion(report.answers["prompt"], ("on-task", "off-task")).counts
    table = render_markdown(report).split("**Prompting**\n\n")[1].split("\n\n")[0].splitlines()
    assert table[0] == "| Truth ↓ Answer → | on-task | off-task | invalid |"
    assert re.findall(r"[|] (\d+)", table[2]) == [str(count) for count in on]


@pytest.mark.slow
def test_another_language_leaves_no_plots_of_the_first(run_copy: Path) -> None:
    kept = run_copy / "report/step.json"
    write_json(kept, {})
    for language in (*LANGUAGES, "en"):
        _, markdown = write_report(run_copy, language=language)
        named = set(re.findall(r"]\((report/[^)]+)\)", markdown.read_text(encoding="utf-8")))
        assert {f"report/{path.name}" for path in kept.parent.iterdir()} == {
            *named,
            "report/step.json",
        }


def test_mistakes_are_the_most_confident_and_of_different_pictures(
    make_prediction: Callable[..., Prediction], tmp_path: Path
) -> None:
    def wrong(name: str, sure: float | None, picture: str, **named: object) -> Prediction:
        p = None if sure is None else {"off-task": sure, "on-task": 1 - sure}
        values = {"predicted": "off-task", "probabilities": p, "pictures": (picture,), **named}
        return make_prediction(example_id=name, **values)

    (tmp_path / "a.png").write_bytes(b"")
    items = [
        wrong("low", 0.6, "b.png"),
        wrong("twin", 0.98, "a.png"),
        wrong("top", 0.99, "a.png"),
        wrong("unknown", None, "c.png"),
        wrong("invalid", 0.9, "d.png", predicted=None, reason="empty"),
    ]
    found = choose_mistakes(items)
    assert [m.example_id for m in found] == ["top", "twin", "low", "unknown", "invalid"]
    many = [wrong(f"same{n:02}", 0.9, "a.png") for n in range(12)]
    few = choose_mistakes([*many, wrong("other", 0.51, "e.png")])
    assert len(few) == 10
    assert "other" in [m.example_id for m in few]
    assert choose_mistakes([]) == []
    right = make_prediction(example_id="right", pictures=("z.png",))
    write_predictions(tmp_path / "evaluate/predictions.jsonl", [right, *items])
    page = render_markdown(build_report(tmp_path))
    assert "got 5 of 6 items of test wrong. Here are 5" in page


def test_unreadable_picture_is_said(
    tmp_path: Path, make_prediction: Callable[..., Prediction]
) -> None:
    (tmp_path / "torn.png").write_bytes(b"\x89PNG")
    for name, words in (("torn.png", "cannot be opened"), ("gone.png", "not there any more")):
        item = make_prediction("on-task", "off-task", pictures=(name,))
        write_predictions(tmp_path / "evaluate/predictions.jsonl", [item])
        report = build_report(tmp_path)
        assert words in render_html(report)
        assert words in render_markdown(report)


@pytest.mark.parametrize("way", ["absolute", "upwards", "link"])
def test_a_picture_outside_the_run_is_shown_only_if_it_is_the_one_that_was_asked_about(
    tmp_path: Path, make_prediction: Callable[..., Prediction], way: str
) -> None:
    run, outside = tmp_path / "run", tmp_path / "secret.png"
    run.mkdir()
    Image.new("RGB", (40, 20)).save(outside)
    (run / "inside.png").symlink_to(outside)
    name = {"absolute": str(outside), "upwards": "../secret.png", "link": "inside.png"}[way]
    for digests, is_shown in (((), False), (("0" * 32,), False), ((digest_file(outside),), True)):
        item = make_prediction("on-task", "off-task", pictures=(name,), picture_digests=digests)
        write_predictions(run / "evaluate/predictions.jsonl", [item])
        html = render_html(build_report(run))
        assert ("data:image/jpeg" in html, "not there any more" in html) == (is_shown, not is_shown)


def test_paths_of_pictures_that_no_file_has_are_no_bug(
    tmp_path: Path, make_prediction: Callable[..., Prediction]
) -> None:
    path = tmp_path / "evaluate/predictions.jsonl"
    for name in ("a" * 5000, "\0", "."):
        write_predictions(path, [make_prediction("on-task", "off-task", pictures=(name,))])
        assert "not there any more" in render_html(build_report(tmp_path))
    row = json.loads(path.read_text())
    path.write_text(json.dumps({**row, "pictures": [5]}) + "\n")
    with pytest.raises(EvaluationError, match="row 1 has pictures that are no paths; got"):
        build_report(tmp_path)


def test_marks_lie_on_the_picture_with_a_legend_and_a_remark(
    tmp_path: Path, make_prediction: Callable[..., Prediction]
) -> None:
    Image.new("RGB", (40, 20)).save(tmp_path / "a.png")
    remark = {"en": "No <verdict>", "zh": "没有裁决"}
    marks = {
        "reference": [[0.25, 0.5, 0.75, 1, 'a "cup"']],
        "answer": [[0, 0, 0.125, 0.25, "b"], [0.5, 0, 1, 1, ""]],
        "remark": remark,
    }
    plain = make_prediction("on-task", "off-task", pictures=("a.png",))
    for item, num_marks in ((plain, 0), (replace(plain, fields={MARKS: marks}), 3)):
        write_predictions(tmp_path / "evaluate/predictions.jsonl", [item])
        html, chinese = (
            render_html(build_report(tmp_path), language=language) for language in LANGUAGES
        )
        assert html.count('<i class="region') == num_marks
        assert ("boxes of the reference" in html) == ("回答的框" in chinese) == bool(num_marks)
        assert ("No &lt;verdict&gt;" in html) == ("没有裁决" in chinese) == bool(num_marks)
    place = "left:25.0%;top:50.0%;width:50.0%;height:50.0%"
    assert f'<i class="region reference" style="{place}" title="a &#34;cup&#34;"></i>' in html
    assert "No &lt;verdict>" in render_markdown(build_report(tmp_path))


def test_smoothing_is_light_and_keeps_constants() -> None:
    assert [choose_window(n) for n in (1, 39, 40, 120, 400)] == [1, 1, 3, 7, 21]
    assert smooth([0.5] * 100) == pytest.approx([0.5] * 100)
    assert smooth([1.0, 5.0, 2.0]) == [1.0, 5.0, 2.0]
    assert smooth([0.0] * 20 + [3.0] + [0.0] * 20)[19:22] == pytest.approx([1.0, 1.0, 1.0])


def test_cells_stay_cells() -> None:
    assert escape_cell(" 94.2\u00a0% ") == "94.2\u00a0%"
    assert escape_cell("a|b\n*c* <d>") == r"a\|b \*c\* &lt;d>"


def test_manifest_with_gaps_is_shown(tmp_path: Path) -> None:
    write_json(tmp_path / "manifest.json", {"recipe": "on_task"})
    write_json(tmp_path / "audit/audit.json", {"findings": [], "splits": {}})
    text = "".join(read_page(render_html(build_report(tmp_path))).texts)
    assert "seed unknown" in text
    assert json.loads((tmp_path / "manifest.json").read_text()) == {"recipe": "on_task"}


def test_both_languages_show_the_same_numbers(full_run: Path) -> None:
    report = build_report(full_run)
    pages = [render_markdown(report, language=language) for language in LANGUAGES]
    tables = [re.findall(r"^\|.*$", page, re.M) for page in pages]
    shown = [[re.findall(r"\d[\d.]*\b", row) for row in rows] for rows in tables]
    assert shown[0] == shown[1]
    assert len(shown[0]) > 60
    assert "在 test 上" in pages[1]
    for words in ("Accuracy", "Policy", "Mistakes", "Settings"):
        assert words not in pages[1]
