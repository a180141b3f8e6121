"""``groupwise data``: what is written and printed, and sentences for mistakes."""

import json

import pytest

from groupwise.core import write_jsonl


@pytest.fixture
def work(tiny):
    folder = tiny.work / "sets" / "gsm8k"
    folder.mkdir(parents=True)
    for part, first, number in (("train", 0, 30), ("test", 30, 4)):
        rows = [{"question": f"Q{n}?", "answer": f"#### {n}"} for n in range(first, first + number)]
        write_jsonl(folder / f"{part}.jsonl", [*rows, {"question": "", "answer": "#### 1"}])
    return tiny


MIX = ("data", "mix", "--source", "gsm8k=sets/gsm8k", "--out", "mixed")


def test_a_mix_is_written_and_its_rows_add_up(work):
    done = work.call(*MIX, "--set", "num_problems=20")
    assert (done.returncode, done.stderr) == (0, "")
    assert "dropped 10: beyond its ratio" in done.stdout
    assert "36 rows: 24 used, 12 dropped" in done.stdout
    report = json.loads((work.work / "mixed/mix.json").read_text())
    assert report["problems"] == {
        "train": {"gsm8k": 18}, "validation": {"gsm8k": 2}, "test": {"gsm8k": 4}
    }  # fmt: skip
    assert len((work.work / "mixed/train.jsonl").read_text().splitlines()) == 18


def test_a_config_has_paths_beside_it_and_findings_are_printed_first(work):
    (work.work / "sets/gsm8k/train.jsonl").unlink()
    source = "{name: gsm8k, path: gsm8k, split_test_part: true}"
    (work.work / "sets/mix.yaml").write_text(f"sources: [{source}]\nvalidation_share: 0.5\n")
    done = work.call("data", "mix", "--config", "sets/mix.yaml", "--out", "mixed")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("warning trains_on_test_part: Problems for training come from")


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (["fetch", "gsm9k"], "there is no set 'gsm9k'; did you mean 'gsm8k'?"),
        (["mix"], "say what is mixed by either --config or --source"),
        (["mix", "--source", "gsm8k=none"], "there is no table at none"),
        (["mix", "--config", "forbidden.yaml"], "humaneval is for tests only and may never train"),
    ],
)
def test_bad_input_is_one_sentence(work, command, words):
    (work.work / "forbidden.yaml").write_text("sources: [{name: humaneval, use: train}]")
    done = work.call("data", *command, "--out", "x")
    assert done.returncode == 2
    assert words in done.stderr
    assert "Traceback" not in done.stderr


def test_fetching_offline_is_one_sentence(work, monkeypatch):
    monkeypatch.setattr("datasets.load_dataset", _refuse)
    done = work.call("data", "fetch", "gsm8k", "--out", "x")
    assert done.returncode == 2
    assert "cannot fetch gsm8k from the hub (no network); go online" in done.stderr


def _refuse(*_, **__):
    raise ConnectionError("no network")
