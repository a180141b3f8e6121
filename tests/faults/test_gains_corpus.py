"""McNemar's test and the interval of a gain say the same of each pair of policies."""

import json
from pathlib import Path

import numpy as np
import pytest

from groupwise.evaluation.statistics import assess_gains

ROWS = [
    json.loads(line)
    for line in (Path(__file__).parent / "gains.jsonl").read_text(encoding="utf-8").splitlines()
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["name"])
def test_interval_and_p_value_agree(row):
    alike = row["n"] - row["won"] - row["lost"]
    gains = np.array([1.0] * row["won"] + [-1.0] * row["lost"] + [0.0] * alike)
    found = assess_gains(list(map(str, range(row["n"]))), gains, is_binary=True, seed=0)
    is_shown = row["expected"] == "shown"
    assert (found.p_value < 0.05, found.low > 0 or found.high < 0) == (is_shown, is_shown)
