"""McNemar's test and the interval of a gain say the same of each pair of policies."""

import numpy as np
from corpora import each_row

from groupwise.evaluation.statistics import assess_gains


@each_row("gains")
def test_interval_and_p_value_agree(row):
    alike = row["n"] - row["won"] - row["lost"]
    gains = np.array([1.0] * row["won"] + [-1.0] * row["lost"] + [0.0] * alike)
    found = assess_gains(list(map(str, range(row["n"]))), gains, is_binary=True, seed=0)
    is_shown = row["expected"] == "shown"
    assert (found.p_value < 0.05, found.low > 0 or found.high < 0) == (is_shown, is_shown)
