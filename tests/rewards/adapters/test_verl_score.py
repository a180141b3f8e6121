import inspect
import math
import os
from pathlib import Path

import numpy as np
import pytest
from foreign_rewards import run_beside

from groupwise.core import Completion, Example, RewardError, Score
from groupwise.rewards import LabelMatch, LabelParser, RewardKind, RewardSet
from groupwise.rewards.adapters import VerlScore

PARSER = LabelParser(labels=("on-task", "off-task"))


class Judge:
    """Pays what the field says."""

    name = "judge"
    kind: RewardKind = "judgement"

    def __call__(self, example: Example, completion: Completion) -> Score:
        return Score(example.fields.get("judged"), example.prompt[-1].text)


REWARDS = RewardSet({"label": (LabelMatch(PARSER), 0.6), "judge": (Judge(), 0.4)})


def test_a_set_is_called_as_verl_calls() -> None:
    compute = VerlScore(REWARDS)
    assert not inspect.iscoroutinefunction(compute)
    got = compute(
        data_source="on_task",
        solution_str="on-task",
        ground_truth="on-task",
        extra_info={"judged": 0.5, "num_turns": None, "question": "Is it?"},
        reward_router_address="ignored",
    )
    assert got == pytest.approx(
        {"score": 0.8, "invalid": 0.0, "reward/label": 1.0, "reward/judge": 0.5}
    )


def test_a_part_without_a_value_keeps_its_key() -> None:
    got = VerlScore(REWARDS)("on_task", "what", "on-task")
    assert list(got) == ["score", "invalid", "reward/label", "reward/judge"]
    assert (got["score"], got["invalid"]) == (0.0, 1.0)
    assert math.isnan(got["reward/judge"])


def test_what_numpy_brings_is_read() -> None:
    seen: list[Example] = []

    class Seen(Judge):
        kind: RewardKind = "other"

        def __call__(self, example: Example, completion: Completion) -> Score:
            seen.append(example)
            return Score(1.0)

    VerlScore(RewardSet({"seen": (Seen(), 1)}))(
        "mmlu",
        "A",
        np.int64(3),
        extra_info={
            "options": np.array(["x", "y"], dtype=object),
            "index": np.int64(7),
            "f": print,
        },
    )
    assert seen[0].label == "3"
    assert seen[0].fields == {"data_source": "mmlu", "options": ["x", "y"], "index": 7}


def test_an_answer_that_cannot_be_scored_is_an_error_or_a_chosen_number() -> None:
    with pytest.raises(RewardError, match=r"is unscored .*unscored="):
        VerlScore(REWARDS)("on_task", "on-task", None)
    got = VerlScore(REWARDS, unscored=0.25)("on_task", "on-task", None)
    assert got["score"] == 0.25
    assert math.isnan(got["reward/label"])
    with pytest.raises(RewardError, match="out of range"):
        VerlScore(REWARDS, unscored=-1.0)


PLUGIN = """
from groupwise.rewards import LabelParser, LabelMatch, RewardSet
from groupwise.rewards.adapters import VerlScore

parser = LabelParser(labels=("on-task", "off-task"))
compute_score = VerlScore(RewardSet({"label": (LabelMatch(parser), 1.0)}))
"""

DRIVER = """
import asyncio, json, sys
import numpy as np
import torch
from omegaconf import OmegaConf
from verl import DataProto
from verl.trainer.ppo.reward import load_reward_manager

class Letters:
    def decode(self, ids, skip_special_tokens=True):
        return "".join(map(chr, ids.tolist()))

manager = {"source": "register", "name": "naive"}
custom = {"path": sys.argv[1], "name": "compute_score"}
config = OmegaConf.create(
    {"reward": {"custom_reward_function": custom, "reward_manager": manager}}
)
loaded = load_reward_manager(config, Letters())

async def score(text, truth):
    ids = torch.tensor([list(map(ord, text.ljust(12, "~")))])
    mask = torch.tensor([[1] * 3 + [1] * len(text) + [0] * (12 - len(text))])
    data = DataProto.from_dict(
        tensors={"prompts": torch.ones(1, 3), "responses": ids, "attention_mask": mask},
        non_tensors={
            "data_source": np.array(["on_task"], dtype=object),
            "reward_model": np.array([{"style": "rule", "ground_truth": truth}], dtype=object),
            "extra_info": np.array([{"index": 0}], dtype=object),
        },
    )
    return await loaded.run_single(data)

async def score_all():
    return [await score(text, "on-task") for text in ("on-task", "off-task", "what")]

outputs = loaded.loop.run_until_complete(score_all())
print("RESULT" + json.dumps(outputs))
"""


@pytest.mark.slow
def test_verl_loads_and_calls_it(tmp_path: Path) -> None:
    folder = os.environ.get("GROUPWISE_VERL")
    if not folder:
        pytest.skip("needs verl: pip install --target FOLDER verl, then GROUPWISE_VERL=FOLDER")
    (tmp_path / "plugin.py").write_text(PLUGIN)
    outputs = run_beside(folder, DRIVER, tmp_path / "plugin.py")
    assert [output["reward_score"] for output in outputs] == [1.0, 0.0, 0.0]
    assert [output["reward_extra_info"]["invalid"] for output in outputs] == [0.0, 0.0, 1.0]
