"""The notebook runs from top to bottom, as one script."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from assemble import ROOT
from groupwise.models.sources import find_place

MODEL = "smollm2-135m-instruct"
NOTEBOOK = ROOT / "examples" / "first_run.ipynb"


def list_code() -> list[str]:
    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    return ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]


def test_the_notebook_is_kept_without_outputs():
    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    assert [cell["outputs"] for cell in cells if cell["cell_type"] == "code"] == [[]] * 4


@pytest.mark.slow
@pytest.mark.usefixtures("users_models")
def test_the_notebook_runs_from_top_to_bottom(tmp_path: Path):
    if find_place(MODEL) == MODEL:
        pytest.skip(f"`groupwise models fetch {MODEL}` brings the model")
    script = "\n".join(list_code())
    # Fewer steps: that it learns is measured elsewhere.
    assert '"max_steps": 10' in script
    script = script.replace('"max_steps": 10', '"max_steps": 2')
    environment = {**os.environ, "OMP_NUM_THREADS": "2"}
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("before:") == done.stdout.count("after:") == 3
    assert (tmp_path / "runs" / "words" / "report.html").is_file()
