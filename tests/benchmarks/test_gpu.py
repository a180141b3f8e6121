"""The one command for a GPU: its parts are there, and none that fails hides or ends the others."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
REHEARSAL = ROOT / "benchmarks" / "results" / "gpu_rehearsal.json"


@pytest.fixture
def gpu(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import gpu

    return gpu


def test_every_script_takes_the_options_that_it_is_given(gpu):
    for part in gpu.PARTS.values():
        source = (ROOT / "benchmarks" / part.script).read_text(encoding="utf-8")
        known = set(re.findall(r'add_argument\(\s*"(--[a-z-]+)"', source))
        given = {one for one in (*part.options, *part.small) if one.startswith("--")}
        assert given | {"--json"} | ({"--dtype"} if part.dtypes else set()) <= known, part.script


def test_packed_wheels_are_those_that_parts_need(gpu):
    """vLLM is larger than what can be carried: it is a row that says so."""
    script = (ROOT / "benchmarks" / "gpu.sh").read_text(encoding="utf-8")
    needed = {part.needs for part in gpu.PARTS.values()} - {None, "vllm"}
    assert all(re.search(rf"\b{name}\b", script) for name in needed)


def test_the_committed_rehearsal_is_whole_and_says_what_it_is(gpu):
    known = json.loads(REHEARSAL.read_text())
    ran = [(part["name"], part["dtype"]) for part in known["parts"]]
    assert ran == [(n, d) for n, p in gpu.PARTS.items() for d in p.dtypes or (None,)]
    table = gpu.write_table(known)
    assert table.startswith("**A rehearsal with tiny models: no number of a GPU.**")
    assert known["hardware"] in table
    assert not [part for part in known["parts"] if "failed" in part]
    rows = [line.split(" | ")[0].removeprefix("| ") for line in table.splitlines() if "|" in line]
    assert {*gpu.PARTS, *gpu.UNMEASURED} <= set(rows)


@pytest.fixture
def run(gpu, tmp_path, monkeypatch):
    monkeypatch.setattr(gpu, "HERE", tmp_path)

    def run_script(source, **changes):
        (tmp_path / "part.py").write_text(source)
        known = gpu.PARTS["serving"]
        part = replace(known, script="part.py", small=(), **{"limit_s": 20} | changes)
        found = gpu.run_part(part, None, tmp_path / "part.json", rehearses=True)
        parts = [{"name": "serving", "dtype": None, **found}]
        table = {"hardware": "none", "is_rehearsal": False, "parts": parts}
        return found, gpu.write_table(table)

    return run_script


WRITES = """
import json, sys
row = {"at_once": 1, "p50_ms": 2.0, "p99_ms": 3.0, "screens_per_s": 4.0}
open(sys.argv[-1], "w").write(json.dumps({"rows": [row]}))
"""


def test_a_part_that_works_has_its_rows(run):
    found, table = run(WRITES)
    assert set(found) == {"took_s", "result"}
    assert "| serving | float32 | 1 at once | p50 2 ms, p99 3 ms, 4.0 screens/s |" in table
    assert "rehearsal" not in table


def test_a_part_that_fails_has_what_it_wrote_and_its_last_line(run):
    found, table = run(WRITES + "raise SystemExit('no | memory')")
    assert found["failed"] == "exit 1: no | memory"
    assert "p50 2 ms" in table
    assert "| serving | float32 | failed | exit 1: no \\| memory |" in table


def test_a_part_that_hangs_is_ended(run):
    found, _ = run("import time; print('slow', flush=True); time.sleep(60)", limit_s=0.5)
    assert found["failed"].startswith("ended after ")
    assert "result" not in found


def test_what_is_not_installed_is_a_question_mark(run):
    found, table = run("", needs="absent_module")
    assert found == {"missing": "absent_module is not installed"}
    assert "| serving | float32 | ? | absent_module is not installed |" in table
