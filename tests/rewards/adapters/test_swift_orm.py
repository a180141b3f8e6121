import inspect
import os
from pathlib import Path

import pytest
from foreign_rewards import Seen, run_beside

from groupwise.rewards import LabelMatch, LabelParser, RewardSet
from groupwise.rewards.adapters import make_swift_orm

PARSER = LabelParser(labels=("on-task", "off-task"))


def converse(*texts: str) -> list[dict[str, str]]:
    roles = ("user", "assistant") * len(texts)
    return [{"role": role, "content": text} for role, text in zip(roles, texts, strict=False)]


def test_a_set_is_called_as_swift_calls() -> None:
    seen = Seen()
    orm_class = make_swift_orm(RewardSet({"label": (LabelMatch(PARSER), 1), "seen": (seen, 1)}))
    orm = orm_class(args=object())
    assert type(orm).__name__ == "Groupwise"
    assert not inspect.iscoroutinefunction(orm.__call__)
    values = orm(
        ["on-task", "what", "on-task"],
        trainer_state=object(),
        messages=[
            converse("Is it?", "on-task"),
            converse("Is it?", "what"),
            converse("First?", "yes", "And now?", "on-task"),
        ],
        solution=["on-task", "on-task", None],
        level=[1, 2, 3],
        is_truncated=[False, True, False],
        response_token_ids=[[1, 2], [[3], [4]], []],
        prompt_id=["a", "b", "c"],
    )
    assert values == [0.75, 0.0, 0.5]
    prompts = [[message.text for message in example.prompt] for example, _ in seen.given]
    assert prompts == [["Is it?"], ["Is it?"], ["First?", "yes", "And now?"]]
    assert [example.fields["level"] for example, _ in seen.given] == [1, 2, 3]
    assert [c.finish_reason for _, c in seen.given] == ["stop", "length", "stop"]
    assert [c.token_ids for _, c in seen.given] == [(1, 2), (3, 4), ()]


def test_what_could_not_be_scored_stays_none() -> None:
    orm = make_swift_orm(RewardSet({"label": (LabelMatch(PARSER), 1)}), name="Mine")()
    assert orm(["on-task", "off-task"], solution=[None, "on-task"]) == [None, 0.0]
    assert type(orm).__name__ == "Mine"


PLUGIN = """
from groupwise.rewards import LabelParser, LabelMatch, RewardSet
from groupwise.rewards.adapters import make_swift_orm
from swift.rewards import orms

parser = LabelParser(labels=("on-task", "off-task"))
orms["groupwise"] = make_swift_orm(RewardSet({"label": (LabelMatch(parser), 1.0)}))
"""

DRIVER = """
import json, sys
import torch
from swift.rewards import orms
from swift.rl_core.data import GRPOSample
from swift.rl_core.grpo_algorithm import compute_rewards_per_func
from swift.utils import import_external_file

import_external_file(sys.argv[1])
orm = orms["groupwise"](args=None)
rows = [
    {
        "messages": [
            {"role": "user", "content": "Is it?"},
            {"role": "assistant", "content": text},
        ],
        "solution": truth,
    }
    for text, truth in (("on-task", "on-task"), ("off-task", "on-task"), ("x", "on-task"),
                        ("on-task", None))
]
samples = [GRPOSample.from_row(row) for row in rows]
values = compute_rewards_per_func(samples, [orm], [None], torch.device("cpu"))
print("RESULT" + json.dumps([None if v != v else v for v in values[:, 0].tolist()]))
"""


@pytest.mark.slow
def test_swift_loads_and_calls_it(tmp_path: Path) -> None:
    folder = os.environ.get("GROUPWISE_MS_SWIFT")
    if not folder:
        pytest.skip(
            "needs ms-swift: pip install --target FOLDER ms-swift, then GROUPWISE_MS_SWIFT=FOLDER"
        )
    (tmp_path / "plugin.py").write_text(PLUGIN)
    assert run_beside(folder, DRIVER, tmp_path / "plugin.py") == [1.0, 0.0, 0.0, None]
