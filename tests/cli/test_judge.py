"""``groupwise judge calibrate``: what is printed and written, and sentences for mistakes."""

import json

import pytest

from groupwise.core import write_jsonl

PAIR = {"question": "Name a colour.", "answer_a": "Red.", "answer_b": "Seven.", "preferred": "a"}


@pytest.fixture
def work(tiny):
    (tiny.work / "first.yaml").write_text("kind: rule\nrule: always_first\n")
    write_jsonl(tiny.work / "pairs.jsonl", [PAIR, PAIR | {"question": "Another?"}])
    return tiny


CALIBRATE = ("judge", "calibrate", "--judge", "first.yaml", "--data", "pairs.jsonl")


def test_a_dry_run_asks_and_writes_nothing(work):
    done = work.call(*CALIBRATE, "--dry-run", "--out", "out")
    assert (done.returncode, done.stderr) == (0, "")
    assert "items      2 (unnamed 2)\nverdicts   4\ncalls      at most 0" in done.stdout
    assert not (work.work / "out").exists()


def test_a_real_process_prints_what_it_writes(work):
    work.use_real_torch()
    done = work.run(*CALIBRATE)
    assert done.returncode == 0, done.stderr
    assert "4 of 4 verdicts\n" in done.stderr
    written = json.loads((work.work / "runs/judge-first/calibration.json").read_text())
    values = {metric["name"]: metric["value"] for metric in written["metrics"]}
    assert values["always_first/flip_rate"] == 1
    [line] = [line for line in done.stdout.splitlines() if line.split()[:1] == ["flip_rate"]]
    assert line.split()[1:3] == ["100.0", "%"]
    assert "report: runs/judge-first/report.html" in done.stdout


def test_bad_input_is_one_sentence(work):
    done = work.call(*CALIBRATE, "--set", "rule=coin")
    assert done.returncode == 2
    assert "rule: Input should be 'always_first', 'longer' or 'shorter'" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (["--data", "none.jsonl"], "there is no none.jsonl; give a file"),
        (["--judge", "none.yaml"], "cannot read the configuration none.yaml"),
        (["--format", "llmbar"], "pairs.jsonl is not JSON"),
    ],
)
def test_other_bad_input(work, changes, words):
    done = work.call(*CALIBRATE, *changes)
    assert done.returncode == 2
    assert words in done.stderr


def test_recorded_verdicts_are_measured_without_a_judge(work):
    rows = [
        {"id": str(n), "label": "a", "verdicts": {"ab": "a", "ba": "b" if n else "a"}}
        for n in range(4)
    ]
    write_jsonl(work.work / "said.jsonl", rows)
    done = work.call("judge", "calibrate", "--verdicts", "said.jsonl", "--out", "out")
    assert (done.returncode, done.stderr) == (0, "")
    lines = [line.split() for line in done.stdout.splitlines()]
    shown = {line[0]: line[1] for line in lines if len(line) > 2}
    assert (shown["right_in_both_orders"], shown["agreement"]) == ("25.0", "62.5")
    assert "another verdict, or none, in the other order: 3 pairs" in done.stdout
    assert (work.work / "out/report.html").is_file()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([*CALIBRATE, "--verdicts", "said.jsonl"], "nobody is asked"),
        (["judge", "calibrate", "--judge", "first.yaml"], "not both given"),
        (["judge", "calibrate", "--verdicts", "none.jsonl"], "there is no none.jsonl"),
    ],
)
def test_verdicts_or_a_judge_with_data(work, arguments, words):
    done = work.call(*arguments)
    assert done.returncode == 2
    assert words in done.stderr
