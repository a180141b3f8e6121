"""What is seen of SFT while it trains: its loss, and how right its held-out answers are."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from groupwise.cli.main import app
from groupwise.core import read_json, read_jsonl


@pytest.mark.parametrize("name", ["sft", "sft_control"])
def test_sft_is_looked_at_on_held_out_items(finished: Path, name: str) -> None:
    looks = [row for row in read_jsonl(finished / name / "metrics.jsonl") if "heldout/n" in row]
    assert [(row["step"], row["heldout/n"]) for row in looks] == [(1, 2), (2, 2)]
    assert all(row["heldout/accuracy"] + row["heldout/invalid"] <= 1 for row in looks)
    assert "num_looks" not in read_json(finished / name / "budget.json", dict)
    page = (finished / "report.md").read_text()
    assert "(report/loss.svg)" in page
    assert "(report/heldout-accuracy.svg)" in page
    shown = CliRunner().invoke(app, ["watch", str(finished), "--once", "--step", name])
    assert shown.exit_code == 0
    assert "Held-out accuracy" in shown.stdout
