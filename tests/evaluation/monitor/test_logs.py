"""Logs that another process is writing: whole lines only, and every change is seen."""

import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupwise.core import append_jsonl, write_jsonl
from groupwise.evaluation.monitor import RunReader
from groupwise.evaluation.monitor.state import read_log


def read_losses(path: Path) -> tuple[tuple[float, ...], int]:
    history, num_damaged = read_log(path)
    return history.read("loss").values, num_damaged


def test_half_a_line_waits_for_its_rest(tmp_path: Path):
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b'{"step": 1, "loss": 2}\n{"step": 2, "los')
    assert read_losses(path) == ((2.0,), 0)
    with path.open("ab") as stream:
        stream.write(b's": 0.5}\n')
    assert read_losses(path) == ((2.0, 0.5), 0)


def test_damaged_lines_are_counted_and_left_out(tmp_path: Path):
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b'{"step": 1, "loss": 1}\nnot json\n[2]\n\n{"step": 3, "loss": 3}\n')
    assert read_losses(path) == ((1.0, 3.0), 2)


@given(
    losses=st.lists(st.floats(min_value=0, max_value=9) | st.none(), max_size=6),
    note=st.text(),
    cut=st.integers(min_value=0, max_value=400),
)
def test_wherever_a_file_is_cut_its_whole_rows_are_read_in_order(
    losses: list[float | None], note: str, cut: int, tmp_path_factory: pytest.TempPathFactory
):
    path = tmp_path_factory.mktemp("log") / "rows.jsonl"
    rows = [{"step": n, "loss": loss, "note": note} for n, loss in enumerate(losses)]
    whole = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()
    path.write_bytes(whole[:cut])
    num_rows = whole[:cut].count(b"\n")
    known = tuple(loss for loss in losses[:num_rows] if loss is not None)
    assert read_losses(path) == (known, 0)


def test_a_log_that_grows_is_replaced_cut_or_removed_is_followed(run):
    run.write_manifest()
    run.start("sft", at_s=1)
    path = run.folder / "sft/metrics.jsonl"
    reader = RunReader(run.folder)

    def read_steps() -> tuple[int, ...]:
        trainings = reader.read().trainings
        return trainings[0].history.read("loss").steps if trainings else ()

    assert read_steps() == ()
    write_jsonl(path, [{"step": step, "loss": 1} for step in (1, 2)])
    assert read_steps() == (1, 2)
    append_jsonl(path, {"step": 3, "loss": 1})
    assert read_steps() == (1, 2, 3)
    write_jsonl(path, [{"step": step, "loss": 1} for step in (1, 2, 9)])
    assert read_steps() == (1, 2, 9)
    os.truncate(path, len(b'{"step": 1, "loss": 1}\n'))
    assert read_steps() == (1,)
    path.unlink()
    assert read_steps() == ()
