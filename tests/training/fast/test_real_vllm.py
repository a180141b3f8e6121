"""A real vLLM on a CPU, in the trainer's process or behind a server: it samples from the policy.

It wants an environment of its own (``examples/vllm/install.sh``) and has no TRL there: its
interpreter runs a job that also sees the packages of this one.
"""

import json
import os
import subprocess
import sys
import sysconfig
from importlib.metadata import distribution
from pathlib import Path

import pytest

import groupwise

ROOT = Path(__file__).parents[3]
VENV = Path(os.environ.get("VLLM_VENV", ROOT / ".venv-vllm"))
VERSION = f"python{sys.version_info.major}.{sys.version_info.minor}"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not (VENV / "lib" / VERSION / "site-packages" / "vllm").is_dir(),
        reason=f"no vLLM of {VERSION} in {VENV.name}; run examples/vllm/install.sh",
    ),
]


@pytest.fixture
def paths(tmp_path):
    """What the job sees before vLLM's own packages: Groupwise and this Transformers; and after."""
    site = Path(sysconfig.get_paths()["purelib"])
    found = distribution("transformers")
    for name in ("transformers", f"transformers-{found.version}.dist-info"):
        (tmp_path / "first" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "first" / name).symlink_to(site / name)
    return f"{tmp_path / 'first'}:{Path(groupwise.__file__).parents[1]}", str(site)


@pytest.fixture
def run_job(text_folder, paths, tmp_path):
    def run(*more):
        job = ROOT / "tests" / "fixtures" / "vllm_job.py"
        quiet = {"VLLM_NO_USAGE_STATS": "1", "HF_HUB_OFFLINE": "1", "VLLM_CPU_KVCACHE_SPACE": "1"}
        return subprocess.run(
            [VENV / "bin" / "python", job, text_folder, tmp_path / "run", *paths, *more],
            env=os.environ | quiet,
            capture_output=True,
            text=True,
            timeout=900,
            check=False,
        )

    return run


def test_a_real_vllm_samples_from_the_policy(run_job, tmp_path):
    """Its log-probabilities are the trainer's, also after updates of the adapter."""
    done = run_job()
    assert done.returncode == 0, done.stderr[-3000:]
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert [row["logprob_gap_max"] < 1e-4 for row in result["rows"]] == [True] * 3
    assert result["rows"][-1]["kl"] > 0.1
    assert result["changed"] == []


def test_weights_that_a_real_vllm_did_not_get_end_the_training(run_job):
    done = run_job("loses")
    assert "TrainingError: vLLM did not sample from the policy" in done.stderr
