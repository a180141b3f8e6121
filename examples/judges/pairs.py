"""Whose answers are better? Each pair is judged in both orders, and a changed mind is a tie.

python examples/judges/pairs.py URL=MODEL PAIRS.jsonl

A row has ``question``, ``first`` and ``second``: the answers of two policies. A judge that prefers
what it reads first would decide every pair; here it shows in the number of flips.
"""

import sys
from collections import Counter
from pathlib import Path

from groupwise.core import read_jsonl
from groupwise.inference.server import ServerModel
from groupwise.inference.settings import ServerSettings
from groupwise.judges import (
    GenerativeJudge,
    NoVerdict,
    PairwiseJudge,
    Question,
    judge_all,
    load_prompt,
)


def count_verdicts(server: str, rows: list[dict[str, str]]) -> Counter[str]:
    """Return how many pairs each side won, how many are ties or flips, and how many undecided."""
    url, _, model = server.partition("=")
    engine = ServerModel(ServerSettings(url=url, model=model))
    labels = ("first", "second", "tie")
    inner = GenerativeJudge(engine, load_prompt("pair"), tag="better", labels=labels)
    verdicts = judge_all(PairwiseJudge(inner), [Question(row) for row in rows])
    return Counter(
        "no verdict" if isinstance(one, NoVerdict) else "flipped" if one.is_flipped else one.label
        for one in verdicts
    )


if __name__ == "__main__":
    counts = count_verdicts(sys.argv[1], read_jsonl(Path(sys.argv[2])))
    print(", ".join(f"{name} {count}" for name, count in sorted(counts.items())))
