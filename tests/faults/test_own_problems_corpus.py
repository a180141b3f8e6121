"""A user's own row of problems is read as its label says, or what it lacks is named."""

import json
from pathlib import Path
from typing import Any

import pytest

from groupwise.data.problems import ProblemSource, load_problems

CORPUS = Path(__file__).parent / "own_problems.jsonl"
FAULTS = [json.loads(line) for line in CORPUS.read_text(encoding="utf-8").splitlines()]
SOUND = {"problem_type": "math", "problem": "What is 1 + 1?", "ground_truth": "2"}


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault["name"])
def test_an_own_row_is_read_or_its_lack_is_named(fault: dict[str, Any], tmp_path: Path):
    path = tmp_path / "own.jsonl"
    path.write_text("\n".join(map(json.dumps, (SOUND, fault["input"]))), encoding="utf-8")
    loaded = load_problems(ProblemSource(name="own", path=str(path), part="train"))
    assert loaded.train[0].problem == SOUND["problem"]
    expected = dict(fault["expected"])
    if "dropped" in expected:
        assert loaded.drops.counts == {expected["dropped"]: 1}
        return
    assert not loaded.drops.counts
    side = loaded.test if expected.pop("part", "train") == "test" else loaded.train
    found = side[-1].model_dump(mode="json")
    assert {name: found[name] for name in expected} == expected
