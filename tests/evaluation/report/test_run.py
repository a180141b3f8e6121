"""The report of a run: what stands in it, in both forms and languages, from its files alone."""

import json
import re
import shutil
from collections.abc import Callable
from dataclasses import asdict, replace
from html import escape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from run_folders import POLICIES
from written_pages import list_plots, show_page

from groupwise.core import DataError, EvaluationError, digest_file, write_json, write_jsonl
from groupwise.evaluation.metrics import Metric, compute_metrics, read_metrics, write_metrics
from groupwise.evaluation.predictions import (
    MARKS,
    Language,
    Measure,
    Prediction,
    write_policies,
    write_predictions,
)
from groupwise.evaluation.report.page import Section, Table, render_svg, write_sections
from groupwise.evaluation.report.phrases import LANGUAGES, format_share
from groupwise.evaluation.report.run import Report, choose_mistakes, write_report

Rows = Callable[..., list[Prediction]]
One = Callable[..., Prediction]
NAMES = ["majority", "text_only", "picture_only", "prompt", "sft", "sft_control", "grpo"]
NEEDED = (
    "manifest.json",
    "evaluate/predictions.jsonl",
    "evaluate/metrics.json",
    "audit/audit.json",
)
HOSTILE = "<script>x</script> $1$ \x1b[31m \u202eleft | `x` \ue000open {0}"


def to_html(run: Path, language: Language = "en") -> str:
    return show_page(Report(run, language).lay_out())[0]


def to_markdown(run: Path, language: Language = "en") -> str:
    return show_page(Report(run, language).lay_out())[1]


def write_run(run: Path, items: list[Prediction], turns: dict[str, str] | None = None) -> Path:
    write_predictions(run / "evaluate/predictions.jsonl", items)
    write_metrics(run / "evaluate/metrics.json", compute_metrics(items, labels=()))
    write_json(run / "evaluate/prompts.json", {"turns": turns or {}})
    write_policies(run, POLICIES)
    return run


@pytest.fixture
def run_copy(full_run: Path, tmp_path: Path) -> Path:
    ignore = shutil.ignore_patterns("pictures")
    return Path(shutil.copytree(full_run, tmp_path / "run", ignore=ignore))


@pytest.fixture(scope="module")
def written(full_run: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Both reports of a copy of the full run."""
    run = tmp_path_factory.mktemp("written") / "demo"
    shutil.copytree(full_run, run)
    return write_report(run)


def test_the_page_is_one_file_that_loads_nothing_and_suits_phones_paper_and_the_dark(
    written: tuple[Path, Path],
) -> None:
    html = written[0].read_text("utf-8")
    tags: list[tuple[str, dict[str, str | None]]] = []
    opened: list[str] = []
    reader = HTMLParser()

    def start(tag: str, attrs: list[tuple[str, str | None]]) -> None:
        tags.append((tag, dict(attrs)))
        if tag not in ("meta", "img"):
            opened.append(tag)

    reader.handle_starttag = start
    reader.handle_endtag = lambda tag: [opened.pop()] == [tag] or pytest.fail(tag)  # pyright: ignore
    reader.feed(html)
    assert opened == []
    loaded = [found[key] or "" for _, found in tags for key in ("src", "href") if key in found]
    assert all(address.startswith(("data:image/", "#")) for address in loaded)
    anchors = {address[1:] for address in loaded if address.startswith("#")}
    assert len(anchors) >= 5
    assert anchors <= {found.get("id") for _, found in tags}
    assert not {"script", "link", "iframe"} & {tag for tag, _ in tags}
    assert all(found.get("alt") for tag, found in tags if tag == "img")
    for words in ("width=device-width, initial-scale=1", "@media print", "color-scheme: dark"):
        assert words in html
    assert "url(" not in html


def test_every_policy_stands_in_order_with_the_numbers_of_the_file(
    full_run: Path, written: tuple[Path, Path]
) -> None:
    metrics = {one.name: one for one in read_metrics(full_run / "evaluate/metrics.json")}
    markdown = written[1].read_text("utf-8")
    lead, table = markdown.split("### test")[1].split("\n\n")[1:3]
    rows = table.splitlines()[2:]
    assert [re.findall(r"`(\w+)`", row)[0] for row in rows] == NAMES
    for policy, row in zip(NAMES, rows, strict=True):
        one = metrics[f"{policy}/accuracy"]
        assert f"`{one.split_digest[:8]}`" in lead
        for shown in (format_share(one.value), f"| {one.n} |"):
            assert shown in row
    order = ["nearly like one of train", "GRPO is clearly better than", "Paired comparisons"]
    for text in (markdown, written[0].read_text("utf-8").partition("<ul class=")[2]):
        places = [text.index(words) for words in order]
        assert places == sorted(places)
    table = markdown.split("**What GRPO answered on test, by truth**\n\n")[1].splitlines()
    assert table[0] == "| Truth ↓ Answer → | off-task | on-task | invalid |"
    answers = [one for one in Report(full_run).answers["grpo"] if one.label == "on-task"]
    counts = [sum(one.predicted == x for one in answers) for x in ("off-task", "on-task", None)]
    assert re.findall(r"[|] (\d+)", table[3]) == list(map(str, counts))
    (row,) = [one for one in markdown.splitlines() if one.startswith("| GRPO | SFT control |")]
    assert "**not told apart**" in row


def test_the_markdown_shows_files_that_are_there_and_its_tables_are_rectangular(
    written: tuple[Path, Path],
) -> None:
    text, folder = written[1].read_text("utf-8"), written[1].parent
    links = re.findall(r"!\[[^\]]+\]\(([^)]+)\)", text)
    assert len([link for link in links if link.endswith(".jpg")]) == 10
    names = ["loss", "reward", "reward-label_match", "heldout-accuracy", "kl", "entropy"]
    assert {f"report/{name}.svg" for name in names} <= set(links)
    assert {path.name for path in (folder / "report").iterdir()} == {Path(x).name for x in links}
    for block in text.split("\n\n"):
        lines = [line for line in block.splitlines() if line.startswith("|")]
        assert len({len(re.findall(r"(?<!\\)\|", line)) for line in lines}) <= 1, block
        assert not lines or re.fullmatch(r"\|( -+:? \|)+", lines[1]), block


def test_both_languages_and_both_forms_show_the_same_numbers(full_run: Path) -> None:
    pages = [to_markdown(full_run, language) for language in LANGUAGES]
    tables = [re.findall(r"^\|.*$", page, re.MULTILINE) for page in pages]
    shown = [[re.findall(r"\d[\d.]*\b", row) for row in rows] for rows in tables]
    assert shown[0] == shown[1]
    assert len(shown[0]) > 30
    # The majority says one label alone; what is measured of the other stands together even so.
    assert pages[0].index("Precision of off-task") < pages[0].index("Recall of off-task")
    for words in ("Accuracy", "Policy", "Mistakes", "Data"):
        assert words not in pages[1]
    html = to_html(full_run)
    cells = [cell.split(" (")[0] for row in tables[0] for cell in row.split(" | ") if "%" in cell]
    assert all(cell.strip("|* ") in html for cell in cells)


def test_a_changed_file_changes_the_report(run_copy: Path) -> None:
    path = run_copy / "evaluate/metrics.json"
    changed = [
        replace(one, value=0.4242, low=0.4, high=0.45) if one.name == "grpo/accuracy" else one
        for one in read_metrics(path)
    ]
    write_metrics(path, changed)
    assert to_markdown(run_copy).count("42.4\u00a0%") >= 2


TRAINING = ("sft/metrics.jsonl", "grpo/metrics.jsonl", "grpo/on_policy.json")


@pytest.mark.parametrize("name", [*NEEDED, "evaluate/comparisons.json", *TRAINING])
def test_each_file_may_be_missing_and_is_then_named(run_copy: Path, name: str) -> None:
    (run_copy / name).unlink()
    assert list(Report(run_copy).absent) == [name]
    html, markdown = show_page(Report(run_copy).lay_out())
    assert f"Not there: `{name}`." in markdown
    assert f"<code>{name}</code>" in html


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("manifest.json", "{"),
        ("audit/audit.json", "[]"),
        ("evaluate/metrics.json", "{}x"),
        ("evaluate/comparisons.json", "[1]"),
        ("evaluate/predictions.jsonl", '{"a": 1}\n'),
        ("evaluate/prompts.json", '{"turns": {"item": 1}}'),
        ("grpo/metrics.jsonl", "nonsense\n{}\n"),
        ("grpo/warnings.json", "{}"),
    ],
)
def test_a_broken_file_is_an_error_that_names_it(run_copy: Path, name: str, text: str) -> None:
    (run_copy / name).write_text(text)
    with pytest.raises((EvaluationError, DataError), match=re.escape(name)):
        Report(run_copy)


def test_an_empty_folder_and_gaps_in_the_manifest_are_shown(tmp_path: Path) -> None:
    with pytest.raises(EvaluationError, match="there is no run at"):
        Report(tmp_path / "nowhere")
    for path in write_report(tmp_path):
        assert all(name in path.read_text("utf-8") for name in NEEDED)
    write_json(tmp_path / "manifest.json", {"recipe": "on_task"})
    write_json(tmp_path / "audit/audit.json", {"findings": [], "splits": {}})
    assert "seed unknown" in to_html(tmp_path)
    write_json(
        tmp_path / "evaluate/metrics.json", [asdict(Metric("a/accuracy", "dev", 1, 1, 1, 9, "d"))]
    )
    assert list(Report(tmp_path).main) == ["a"]


def test_other_policies_splits_and_open_answers_work(tmp_path: Path, make_table: Rows) -> None:
    rows = [("通过", "通过"), ("不通过", "通过"), ("不通过", None)]
    items = [
        one for split in ("dev", "test") for one in make_table(rows, policy="我的策略", split=split)
    ]
    write_run(tmp_path, items)
    assert list(Report(tmp_path).by_split) == ["test", "dev"]
    assert "| 不通过 | 0 | 1 | 1 |" in to_markdown(tmp_path)
    assert "我的策略" in to_html(tmp_path)
    many = make_table([(str(n), str(n + n % 2)) for n in range(30)], policy="grpo")
    write_run(tmp_path, many)
    assert "Truth" not in to_markdown(tmp_path)


@pytest.mark.parametrize("language", LANGUAGES)
def test_hostile_texts_are_shown_and_do_nothing(
    tmp_path: Path, make_prediction: One, language: Language
) -> None:
    cluster = HOSTILE.replace("\ue000", "")
    one = make_prediction("yes", HOSTILE, text=HOSTILE, cluster=cluster, policy="sft")
    fixed = replace(one, predicted="yes", policy="grpo")
    other = replace(fixed, example_id="other", label=HOSTILE, fields={"task": HOSTILE})
    items = [one, fixed, other, replace(other, policy="sft", predicted=HOSTILE)]
    run = write_run(tmp_path / "run", items, {"item": HOSTILE})
    html, markdown = to_html(run, language), to_markdown(run, language)
    for page in (html, markdown):
        assert "<script" not in page
        assert not set(page) & {"\x1b", "\u202e"}
        assert "␛[31m" in page.replace("\\[", "[")
    assert html.count("<code>") == html.count("</code>")
    assert escape("<script>x</script> $1$") in html
    assert not re.search(r"(?<!\\)\$", markdown)
    assert "{0}" in html


def test_long_texts_are_cut(tmp_path: Path, make_table: Rows) -> None:
    long = "word " * 1000
    before = make_table([("yes", "yes")], policy="sft", text=long)
    after = make_table([("yes", "no")], policy="grpo", text=long)
    page = to_html(write_run(tmp_path, [*before, *after], {"i0000": long}))
    assert max(map(len, re.findall(r"(?:word )+", page))) <= 400


def test_mistakes_stand_beside_what_was_answered_before_training(
    tmp_path: Path, make_table: Rows
) -> None:
    before = make_table([("yes", "no"), ("yes", "yes"), ("yes", "yes")], policy="sft")
    after = make_table([("yes", "yes"), ("yes", "no")], policy="grpo")
    turns = {f"i{n:04}": f"Question {n}?" for n in range(3)}
    page = to_markdown(write_run(tmp_path, [*before, *after], turns)).split("## Mistakes")[1]
    assert "GRPO got 1 of 2 items of test wrong; here are 1" in page
    said = "SFT warm-up said: “yes”; GRPO said: “no”; cluster"
    assert f"1. **Question 1?**: truth: yes; SFT warm-up: yes; GRPO: no; {said}" in page
    assert "Question 0" not in page
    assert "picture" not in page  # these items never had one
    page = to_markdown(write_run(tmp_path, after, turns)).split("## Mistakes")[1]
    assert "**Question 1?**: truth: yes; GRPO: no; GRPO said" in page


@pytest.mark.parametrize("is_higher_better", [True, False])
def test_of_scored_answers_the_worst_are_shown_with_what_was_rewarded(
    tmp_path: Path, make_prediction: One, is_higher_better: bool
) -> None:
    values = [(0.0, 0.0), (1.0, 1.0), (0.2, 0.4)]
    items = [
        make_prediction(
            None, None, example_id=f"i{n}", policy=policy, text=policy, scores={"m": pair[place]}
        )
        for n, pair in enumerate(values)
        for place, policy in enumerate(("sft", "grpo"))
    ]
    unscored = make_prediction(None, None, example_id="none", text="unscored", scores={})
    write_run(tmp_path, [*items, unscored])
    own = asdict(Measure("m", "Mine", "我的", is_higher_better=is_higher_better))
    write_json(tmp_path / "evaluate/conditions.json", {"measures": [own]})
    write_jsonl(tmp_path / "grpo/metrics.jsonl", [{"step": 1, "reward": 1.0, "reward/m": 1.0}])
    html, page = to_html(tmp_path), to_markdown(tmp_path)
    head = "Mine, rewarded" if is_higher_better else "Mine (less is better), rewarded"
    assert f"| Policy | {head} |" in page
    (row,) = [line for line in page.splitlines() if line.startswith("| GRPO") and "0.0–" in line]
    assert "46.7\u00a0%" in row
    assert "GRPO is below the best value on 2 of 3 items of test; here are 2, the worst" in page
    shown = re.findall(r'class="pill (\w+)">(?:SFT warm-up|GRPO): ([\d.]+)', html)
    worst = "0.0" if is_higher_better else "100.0"
    assert shown[:2] == [("wrong", worst)] * 2
    assert shown[2:] == [("wrong", "20.0"), ("wrong", "40.0")]


def test_mistakes_are_the_most_confident_and_of_different_pictures(
    make_prediction: One, tmp_path: Path
) -> None:
    def wrong(name: str, sure: float | None, picture: str, **named: object) -> Prediction:
        p = None if sure is None else {"off-task": sure, "on-task": 1 - sure}
        values = {"predicted": "off-task", "probabilities": p, "pictures": (picture,), **named}
        return make_prediction(example_id=name, **values)

    items = [
        wrong("low", 0.6, "b.png"),
        wrong("twin", 0.98, "a.png"),
        wrong("top", 0.99, "a.png"),
        wrong("unknown", None, "c.png"),
        wrong("invalid", 0.9, "d.png", predicted=None, reason="empty"),
    ]
    found = [one.example_id for one in choose_mistakes([(0.0, one) for one in items])]
    assert found == ["top", "low", "unknown", "invalid"]
    many = [wrong(f"other{n:02}", 0.9, f"{n}.png") for n in range(12)]
    few = choose_mistakes([(0.5, items[2]), *((0.4, one) for one in many)])
    assert [one.example_id for one in few] == [f"other{n:02}" for n in range(10)]
    write_run(tmp_path, [make_prediction(example_id="right", pictures=("z.png",)), *items])
    assert "got 5 of 6 items of test wrong; here are 4" in to_markdown(tmp_path)
    write_run(tmp_path, [make_prediction()])
    assert "got 0 of 1 items of test wrong" in to_markdown(tmp_path)


@pytest.mark.parametrize("way", ["absolute", "upwards", "link"])
def test_a_picture_outside_the_run_is_shown_only_if_it_is_the_one_that_was_asked_about(
    tmp_path: Path, make_prediction: One, way: str
) -> None:
    run, outside = tmp_path / "run", tmp_path / "secret.png"
    run.mkdir()
    Image.new("RGB", (40, 20)).save(outside)
    (run / "inside.png").symlink_to(outside)
    name = {"absolute": str(outside), "upwards": "../secret.png", "link": "inside.png"}[way]
    for digests, is_shown in (((), False), (("0" * 32,), False), ((digest_file(outside),), True)):
        item = make_prediction("on-task", "off-task", pictures=(name,), picture_digests=digests)
        html = to_html(write_run(run, [item]))
        assert ("data:image/jpeg" in html, "The picture is gone" in html) == (
            is_shown,
            not is_shown,
        )


@pytest.mark.parametrize("name", ["torn.png", "gone.png", "a" * 5000, "\0", "."])
def test_pictures_that_cannot_be_shown_are_said(
    tmp_path: Path, make_prediction: One, name: str
) -> None:
    told = "The picture is gone or cannot be opened."
    (tmp_path / "torn.png").write_bytes(b"\x89PNG")
    write_run(tmp_path, [make_prediction("on-task", "off-task", pictures=(name,))])
    assert told in to_html(tmp_path)
    assert told in to_markdown(tmp_path)
    path = tmp_path / "evaluate/predictions.jsonl"
    path.write_text(json.dumps({**json.loads(path.read_text()), "pictures": [5]}) + "\n")
    with pytest.raises(EvaluationError, match=r"predictions.jsonl is damaged; got 0\.pictures\.0"):
        Report(tmp_path)


def test_marks_lie_on_the_picture_with_a_legend_and_a_remark(
    tmp_path: Path, make_prediction: One
) -> None:
    Image.new("RGB", (40, 20)).save(tmp_path / "a.png")
    marks = {
        "reference": [[0.25, 0.5, 0.75, 1, 'a "cup"']],
        "answer": [[0, 0, 0.125, 0.25, "b"], [0.5, 0, 1, 1, ""]],
        "remark": {"en": "No <verdict>", "zh": "没有裁决"},
    }
    plain = make_prediction("on-task", "off-task", pictures=("a.png",))
    for item, num_marks in ((plain, 0), (replace(plain, fields={MARKS: marks}), 3)):
        write_run(tmp_path, [item])
        html, chinese = (to_html(tmp_path, language) for language in LANGUAGES)
        assert html.count('<i class="region') == num_marks
        assert ("boxes of the reference" in html) == ("回答的框" in chinese) == bool(num_marks)
        assert ("No &lt;verdict&gt;" in html) == ("没有裁决" in chinese) == bool(num_marks)
    place = "left:25.0%;top:50.0%;width:50.0%;height:50.0%"
    assert f'<i class="region reference" style="{place}" title="a &#34;cup&#34;"></i>' in html
    assert "No &lt;verdict>" in to_markdown(tmp_path)


PROMPT = "<|im_start|>user\n\n# 1 < 2\n```\n<script>x</script>\x1b[31m<|im_end|>\n<|im_start|>"


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_prompt_is_shown_line_by_line_and_commands_name_the_folder(
    tmp_path: Path, language: Language
) -> None:
    run = tmp_path / "my run"
    asked = {"item": "0123456789", "shown": PROMPT, "pictures": ["a`b.png"], "turns": {}}
    write_json(run / "evaluate/prompts.json", asked)
    write_json(run / "evaluate/verbs.json", ["export-model", "predict", "nonsense"])
    shown = PROMPT.replace("\x1b", "␛")
    assert f'<pre class="card">{escape(shown)}</pre>' in to_html(run, language)
    markdown = to_markdown(run, language)
    indented = "\n".join(f"    {line}" for line in shown.split("\n"))
    commands = "    groupwise predict 'my run' ROWS --out answers.jsonl\n"
    commands += "    groupwise export 'my run' --out model"
    for words in ("`01234567`", "a\\`b.png", f"\n\n{indented}\n\n", f"\n\n{commands}\n\n"):
        assert words in markdown
    for name in ("verbs", "prompts"):
        (run / f"evaluate/{name}.json").unlink()
    bare = to_markdown(run, language)
    assert "    groupwise" not in bare
    assert "im_start" not in bare


def test_trainings_of_any_name_have_curves_and_need_their_check(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {"step": step, "reward": step / 4, "reward/label": 0.5, "kl": step / 1000}
        for step in (1, 2, 3)
    ]
    rows[1]["heldout/accuracy"] = 0.75
    write_jsonl(tmp_path / "stage_one/metrics.jsonl", rows)
    write_jsonl(tmp_path / "stage_two/metrics.jsonl", rows)
    write_json(tmp_path / "stage_one/on_policy.json", {"num_tokens": 7, "max_kl": None})
    write_jsonl(tmp_path / "warm/metrics.jsonl", [{"step": 1, "loss": 2.0}])
    report = Report(tmp_path)
    plots = {plot.name: plot.alt for plot in list_plots(report.lay_out())}
    assert sorted(plots) == ["heldout-accuracy", "kl", "loss", "reward", "reward-label"]
    assert "stage_one 0.001 → 0.003; stage_two 0.001 → 0.003" in plots["kl"]
    assert report.absent[-1] == "stage_two/on_policy.json"
    (tmp_path / "none").mkdir()
    assert "## Training" not in to_markdown(tmp_path / "none")


def test_losses_and_held_out_accuracies_of_supervised_trainings_are_a_plot_each(
    tmp_path: Path,
) -> None:
    losses = [{"step": step, "loss": 2.0 / step} for step in (1, 2, 3, 4)]
    looks = [{"step": step, "heldout/accuracy": step / 8, "heldout/n": 96} for step in (2, 4)]
    write_policies(tmp_path, POLICIES)
    write_jsonl(tmp_path / "sft/metrics.jsonl", losses + looks)
    write_jsonl(tmp_path / "sft_control/metrics.jsonl", losses)
    heldout, loss = list_plots(Report(tmp_path, "zh").lay_out())
    assert loss.alt == "损失: SFT 预热 2 → 0.5; SFT 对照 2 → 0.5"
    assert heldout.alt == "留出集准确率: SFT 预热 0.25 → 0.5"
    drawn = re.findall(r"<text[^>]*>([^<]*)</text>", render_svg(loss).decode())
    assert {"SFT 预热", "SFT 对照", "步", "1.5"} <= set(drawn)
    drawn = re.findall(r"<text[^>]*>([^<]*)</text>", render_svg(heldout).decode())
    assert "100\u00a0%" in drawn


def test_sections_of_a_recipe_stand_in_their_place_and_language(
    full_run: Path, tmp_path: Path
) -> None:
    run = Path(shutil.copytree(full_run, tmp_path / "run"))
    table = Table("", ("policy", "missed|x"), (("<script>c1</script>", "25.0 %\n<12.5>"),))
    two = Table("<i>second</i>", ("policy", "score"), (("cell-b1", "cell-b2"),))
    sections = (
        Section("Missed <i>", "A text & more.", (table,), is_first=True),
        Section("按任务", tables=(table, two)),
        Section("Mine", "English text", language="en"),
        Section("我的", language="zh"),
    )
    write_sections(run / "evaluate/sections.json", sections)
    html, markdown = to_html(run), to_markdown(run)
    for page in (html, markdown):
        assert "<script" not in page
        assert "<i>" not in page
        assert page.count("cell-b1") == 1
        assert "我的" not in page
    assert r"| &lt;script>c1&lt;/script> | 25.0 % (&lt;12.5>) |" in markdown
    order = [
        "<h2>Missed",
        "<h2>Accuracy<",
        "<h2>Training",
        "<h2>按任务",
        "<h2>Mine",
        "<h2>Mistakes",
    ]
    places = [html.index(words) for words in order]
    assert places == sorted(places)
    navigation = html.partition("<nav")[2].partition("</nav>")[0]
    for anchor in re.findall(r'href="#([^"]+)">', navigation):
        assert re.fullmatch(r"[a-z0-9-]+", anchor)
        assert html.count(f'id="{anchor}"') == 1
    chinese = to_html(run, "zh")
    assert "我的" in chinese
    assert "English text" not in chinese
