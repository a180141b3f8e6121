"""A run that reads words: they pay, and the verifier stands among the baselines."""

import importlib.util
import json
from pathlib import Path

import pytest
from command_line import CommandLine
from recipe_runs import POLICIES, RecipeJob

from groupwise.core import read_json, read_jsonl
from groupwise.evaluation.metrics import read_metrics


@pytest.mark.slow
@pytest.mark.skipif(
    importlib.util.find_spec("rapidocr") is None,
    reason="needs RapidOCR: pip install 'groupwise[ocr]'",
)
def test_the_verifier_pays_and_is_a_baseline(
    job: RecipeJob, tmp_path: Path, command_line: CommandLine
) -> None:
    sizes = {"data.drawn.width": 640, "data.drawn.height": 480, "data.stored_pixels": 400_000}
    asked = {"rewards.visual_verifier": 0.2, "visual_verifier.is_baseline": True}
    seen = RecipeJob("on_task", {**job.settings, **sizes, **asked})
    run = tmp_path / "run"
    done = command_line(*seen.list_arguments(run))
    assert done.returncode == 0, done.stderr
    assert "visual_verifier 0.1667" in done.stderr
    assert set(one.policy for one in read_metrics(run / "evaluate" / "metrics.json")) == {
        *POLICIES,
        "visual_verifier",
    }
    counts = read_json(run / "grpo" / "judge.json", dict)["visual_verifier"]
    assert counts["num_decided"] > 0
    assert counts["num_failed"] == 0
    rows = list(read_jsonl(run / "grpo" / "metrics.jsonl"))
    assert any("reward/visual_verifier" in json.dumps(row) for row in rows)
    assert "Visual verifier" in (run / "report.md").read_text()
