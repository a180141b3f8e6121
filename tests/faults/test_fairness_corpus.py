"""The corpus of bases with the same weights says which other files make them unlike."""

import json
from pathlib import Path
from typing import Any

import pytest
from run_folders import VARIED, make_run, write_weights

from groupwise.core import write_json
from groupwise.evaluation import check_fairness, digest_weights, read_facts

ROWS = [
    json.loads(line)
    for line in (Path(__file__).parent / "fairness.jsonl").read_text(encoding="utf-8").splitlines()
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["name"])
def test_a_base_with_the_same_weights_keeps_its_label(row: dict[str, Any], tmp_path: Path) -> None:
    runs = []
    for side in ("one", "two"):
        base = tmp_path / f"base {side}"
        write_weights(base, 1.0)
        if row[side] is not None:
            write_json(base / row["file"], row[side])
        changes = {
            "evaluate/conditions.json:base_weights": digest_weights(base),
            "manifest.json:config/model/base": str(base),
            "manifest.json:inputs": {"model.base": side},
        }
        varied = VARIED if side == "two" else {}
        runs.append(make_run(tmp_path / side, {**varied, **changes}, answers=side))
    verdict = check_fairness([read_facts(run) for run in runs], factors=("grpo.beta",))
    names = {one.name for one in verdict.confounding}
    if row["expected"] == "same":
        assert verdict.is_fair
    else:
        assert {"base_weights/digest", "config/model.base", "inputs/model.base"} == names
