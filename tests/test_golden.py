"""Golden runs: what they compare, and the committed digests where this machine can have them."""

import json
import struct
from pathlib import Path

import pytest
from golden_runs import (
    CASES,
    DIGESTS,
    ROOT,
    describe_machine,
    find_changed_files,
    find_differences,
    read_run,
    run_case,
)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_a_run_is_to_the_byte_what_it_was(name: str) -> None:
    told, here = json.loads(DIGESTS.read_text())["machine"], describe_machine()
    if told != here:
        pytest.skip(f"digests.json holds for {told}, and this is {here}")
    assert find_changed_files(name, run_case(name, ROOT / "src")) == []


def write_run(folder: Path) -> Path:
    (folder / "grpo" / "policy").mkdir(parents=True)
    (folder / "evaluate").mkdir()
    header = {
        "a": {"dtype": "U8", "shape": [2], "data_offsets": [0, 2]},
        "b": {"dtype": "U8", "shape": [1], "data_offsets": [2, 3]},
    }
    told = json.dumps(header).encode()
    content = struct.pack("<Q", len(told)) + told + bytes([1, 2, 3])
    (folder / "grpo" / "policy" / "model.safetensors").write_bytes(content)
    rows = [{"example_id": name, "policy": "grpo", "text": name, "latency_s": 0.5} for name in "xy"]
    lines = [json.dumps(row) + "\n" for row in rows]
    (folder / "evaluate" / "predictions.jsonl").write_text("".join(lines))
    metrics = [
        {"name": "grpo/accuracy", "split": "test", "value": 0.5},
        {"name": "grpo/latency_p50", "split": "test", "value": 0.1},
    ]
    (folder / "evaluate" / "metrics.json").write_text(json.dumps(metrics))
    return folder


def change(path: Path, old: str, new: str) -> None:
    text = path.read_bytes()
    assert old.encode() in text
    path.write_bytes(text.replace(old.encode(), new.encode()))


@pytest.mark.parametrize(
    ("file", "old", "new", "part", "expected"),
    [
        (
            "grpo/policy/model.safetensors",
            "\x03",
            "\x04",
            "weights",
            ["grpo/policy/model.safetensors: b: "],
        ),
        (
            "evaluate/predictions.jsonl",
            '"text": "y"',
            '"text": "z"',
            "predictions",
            ['evaluate/predictions.jsonl: [grpo y].text: "y" -> "z"'],
        ),
        ("evaluate/predictions.jsonl", '"latency_s": 0.5', '"latency_s": 0.7', "predictions", []),
        (
            "evaluate/metrics.json",
            "0.5}",
            "0.5000000000000001}",
            "metrics",
            ["evaluate/metrics.json: [grpo/accuracy test].value: 0.5 -> 0.5000000000000001"],
        ),
        ("evaluate/metrics.json", "0.1}", "0.2}", "metrics", []),
    ],
)
def test_a_difference_is_told_by_its_file_and_key(
    tmp_path: Path, file: str, old: str, new: str, part: str, expected: list[str]
) -> None:
    before, after = (read_run(write_run(tmp_path / side)) for side in ("before", "after"))
    assert before == after
    change(tmp_path / "after" / file, old, new)
    after = read_run(tmp_path / "after")
    found = {name: find_differences(before[name], after[name]) for name in before}
    assert [
        line[: len(one)] for line, one in zip(found.pop(part), expected, strict=True)
    ] == expected
    assert not any(found.values())


def test_another_order_and_a_missing_file_are_differences(tmp_path: Path) -> None:
    before, after = (write_run(tmp_path / side) for side in ("before", "after"))
    rows = (after / "evaluate" / "predictions.jsonl").read_text().splitlines(keepends=True)
    (after / "evaluate" / "predictions.jsonl").write_text("".join(rows[::-1]))
    (after / "evaluate" / "metrics.json").unlink()
    old, new = read_run(before), read_run(after)
    assert find_differences(old["metrics"], new["metrics"]) == [
        "evaluate/metrics.json: only of the base"
    ]
    [line] = find_differences(old["predictions"], new["predictions"])
    assert "(order)" in line
