"""A user's own row of problems is read as its label says, or what it lacks is named."""

import json
from pathlib import Path
from typing import Any

from corpora import each_row

from groupwise_recipes.workflows.problem_loading import ProblemSource, load_problems

SOUND = {"problem_type": "math", "problem": "What is 1 + 1?", "ground_truth": "2"}


@each_row("own_problems")
def test_an_own_row_is_read_or_its_lack_is_named(row: dict[str, Any], tmp_path: Path):
    path = tmp_path / "own.jsonl"
    path.write_text("\n".join(map(json.dumps, (SOUND, row["input"]))), encoding="utf-8")
    loaded = load_problems(ProblemSource(name="own", path=str(path), part="train"))
    assert loaded.train[0].problem == SOUND["problem"]
    expected = dict(row["expected"])
    if "dropped" in expected:
        assert loaded.drops.counts == {expected["dropped"]: 1}
        return
    assert not loaded.drops.counts
    side = loaded.test if expected.pop("part", "train") == "test" else loaded.train
    found = side[-1].model_dump(mode="json")
    assert {name: found[name] for name in expected} == expected
