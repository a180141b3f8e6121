"""What the monitor sees stands in the report, too."""

import re
from pathlib import Path

import pytest
from run_folders import POLICIES

from groupwise.core import write_json, write_jsonl
from groupwise.evaluation import Policies, write_policies
from groupwise.evaluation.page import Language, Words, list_plots
from groupwise.evaluation.page.canvas import render_svg
from groupwise.evaluation.report import build_report, lay_out, render_html, render_markdown
from groupwise.evaluation.report.training import tabulate_trainings

WORDS = Words("en", policies=Policies(POLICIES))


def test_every_alarm_of_every_training_is_a_notice(tmp_path: Path):
    rows = [{"step": step, "truncated": 0.5, "dead_groups": 1.0} for step in range(1, 6)]
    write_policies(tmp_path, POLICIES)
    write_jsonl(tmp_path / "grpo/metrics.jsonl", rows)
    counts = {"judge": "fit judge", "num_questions": 200, "no_verdict_rate": 0.5}
    write_json(tmp_path / "grpo/judge.json", counts)
    write_jsonl(
        tmp_path / "sft/metrics.jsonl", [{"step": step, "loss": 2.0} for step in range(1, 21)]
    )
    found = {WORDS.say(one): one for one in build_report(tmp_path).notices}
    texts = " ".join(found)
    assert "GRPO, step 5: 50.0\u00a0% of the answers reach the length limit" in texts
    assert "GRPO, step 5: fit judge gave no verdict on 50.0\u00a0% of 200 questions" in texts
    assert (
        "SFT warm-up, step 20: the loss is not falling: 2 in the last third of its rows, 2 in"
        in texts
    )
    (dead,) = (notice for text, notice in found.items() if "all completions of a group" in text)
    assert (dead.level, dead.source) == ("error", "grpo/metrics.jsonl")


def test_a_training_of_any_name_has_its_curves_and_alarms(tmp_path: Path):
    rows = [
        {"step": step, "reward": 0.5, "reward/label": 0.5, "kl": 0.1, "truncated": 0.5}
        for step in range(1, 6)
    ]
    write_jsonl(tmp_path / "stage_one/metrics.jsonl", rows)
    write_jsonl(tmp_path / "stage_two/metrics.jsonl", rows)
    write_json(tmp_path / "stage_one/on_policy.json", {"num_tokens": 7})
    write_jsonl(tmp_path / "warm/metrics.jsonl", [{"step": 1, "loss": 2.0}])
    report = build_report(tmp_path)
    names = [plot.name for plot in list_plots(lay_out(report))]
    for step in ("stage_one", "stage_two"):
        curves = {f"learning-curve-{step}", f"reward-parts-{step}", f"signal-{step}-kl"}
        assert curves <= set(names)
        sources = {notice.source for notice in report.notices}
        assert f"{step}/metrics.jsonl" in sources
    assert "loss" in names
    assert len(names) == len(set(names))
    assert list(report.files.on_policy) == ["stage_one"]
    assert {
        name for name in report.files.absent if name.endswith(("on_policy.json", "metrics.jsonl"))
    } == {"stage_two/on_policy.json"}
    html = render_html(report)
    assert "KL to the start of stage_two" in html
    assert "num_tokens = 7" in html


@pytest.mark.parametrize(
    ("language", "ends"),
    [
        ("en", ("Loss", "Held-out accuracy", "Loss and held-out accuracy of SFT warm-up")),
        ("zh", ("损失", "留出集准确率", "SFT 预热 的损失与留出集准确率")),
    ],
)
def test_loss_and_held_out_accuracy_of_sft_are_one_plot(
    tmp_path: Path, language: Language, ends: tuple[str, str, str]
):
    losses = [{"step": step, "loss": 2.0 / step} for step in (1, 2, 3, 4)]
    looks = [{"step": step, "heldout/accuracy": step / 8, "heldout/n": 96} for step in (2, 4)]
    write_policies(tmp_path, POLICIES)
    write_jsonl(tmp_path / "sft/metrics.jsonl", losses + looks)
    write_jsonl(tmp_path / "sft_control/metrics.jsonl", losses)
    plots = {plot.name: plot for plot in list_plots(lay_out(build_report(tmp_path), language))}
    assert {"loss", "loss-and-accuracy-sft"} == set(plots)
    found = plots["loss-and-accuracy-sft"]
    left, right, title = ends
    assert found.title == title
    assert found.alt == f"{title}: {left} 2 → 0.5; {right} 25.0\u00a0% → 50.0\u00a0%"
    drawn = render_svg(found.draw, found.size).decode()
    told = re.findall(r"<text[^>]*>([^<]*)</text>", drawn)
    assert {left, right, Words(language).label("step"), "100\u00a0%", "1.5"} <= set(told)


def test_the_values_of_the_page_are_in_the_report(tmp_path: Path):
    rows = [
        {"step": 1, "reward": 0.5, "reward/format": 0.25, "kl": 0.001, "num_groups": 8},
        {"step": 2, "heldout/accuracy": 0.75, "heldout/n": 96},
        {"step": 3, "reward": 0.75, "reward/format": 0.5, "kl": 0.002, "num_groups": 8},
    ]
    write_policies(tmp_path, POLICIES)
    write_jsonl(tmp_path / "grpo/metrics.jsonl", rows)
    report = build_report(tmp_path)
    (fold,) = tabulate_trainings(report.files.logs, WORDS)
    (table,) = fold.blocks
    assert fold.summary == "GRPO: 4 series over 3 steps"
    assert [row[0] for row in table.rows] == [
        "Reward",
        "Reward: format",
        "Held-out accuracy",
        "KL to the start",
    ]
    assert (table.rows[0][2], table.rows[0][1]) == ("50.0\u00a0%", "75.0\u00a0%")
    assert table.rows[3][3:5] == ("0.001", "0.002")
    html, markdown = render_html(report), render_markdown(report)
    assert "GRPO: 4 series over 3 steps" in html
    assert "<td>Held-out accuracy</td><td>75.0\u00a0%</td>" in html
    assert (
        "| Reward: format | 50.0\u00a0% | 25.0\u00a0% | 25.0\u00a0% | 50.0\u00a0% | 2 |" in markdown
    )


def test_a_run_without_training_has_no_table(tmp_path: Path):
    report = build_report(tmp_path)
    assert tabulate_trainings(report.files.logs, WORDS) == ()
    assert "<h3>Values</h3>" not in render_html(report)


def test_time_and_machine_of_each_training_are_what_was_recorded(tmp_path: Path):
    starts = [
        {"started_at": f"2026-05-01T1{hour}:00:00+00:00", "hardware": {"accelerators": [name]}}
        for hour, name in enumerate(("A100", "H100", "H200"))
    ]
    write_policies(tmp_path, POLICIES)
    write_jsonl(tmp_path / "history.jsonl", starts)
    write_json(tmp_path / "manifest.json", starts[-1])
    rows = [{"step": 5 * n, "loss": 1.0, "step_s": s} for n, s in enumerate((9.0, 2.0, 4.0), 1)]
    write_jsonl(tmp_path / "sft/metrics.jsonl", rows)
    done = {"duration_s": 300.0, "finished_at": "2026-05-01T11:30:00+00:00"}
    write_json(tmp_path / "sft/step.json", done)
    write_jsonl(tmp_path / "grpo/metrics.jsonl", [{"step": 3, "loss": 1.0}])
    page = render_markdown(build_report(tmp_path)).replace("\u00a0", " ")
    table = page.split("### Time and machine")[1].split("\n## ")[0].splitlines()
    assert [row for row in table if row.startswith("| ")][2:] == [
        "| SFT warm-up | 15 | 4 s | 5 min | accelerators H100 |",
        "| GRPO | 3 | – | – | – |",
    ]
