import inspect
import math
import os
from pathlib import Path

import numpy as np
import pytest
from foreign_rewards import run_beside

from groupwise.core import Completion, Example, Message, RewardError, Score, make_example
from groupwise.rewards import LabelMatch, LabelParser, Reward, RewardKind, RewardSet
from groupwise.rewards.adapters import ScoreRange, VerlReward, VerlScore

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


ITEM = make_example(
    [Message("user", "1 + 1?")], cluster="g", label="2", fields={"data_source": "s"}
)


def test_a_function_gets_what_verl_would_give_it() -> None:
    def compute_score(data_source, solution_str, ground_truth, extra_info=None, **kwargs):
        assert (data_source, solution_str, ground_truth) == ("s", "two", "2")
        assert extra_info == {"data_source": "s"}
        assert kwargs == {}
        return {"score": -1.0, "acc": 3}

    reward = VerlReward(compute_score, kind="truth", values=ScoreRange(-1, 1))
    assert isinstance(reward, Reward)
    assert reward(ITEM, Completion("two")).value == 0.0
    own = VerlReward(lambda data_source, **_: len(data_source) == 5, data_source="other")
    assert own(ITEM, Completion("two")).value == 1.0


def test_without_a_label_there_is_no_score() -> None:
    item = make_example([Message("user", "?")], cluster="g")
    assert VerlReward(lambda **_: 1.0)(item, Completion("x")) == Score(None, "no label")


@pytest.mark.parametrize("returned", [2.0, {"acc": 1.0, "score": "x"}, "1", [1.0]])
def test_what_is_no_value_in_range_is_an_error(returned: object) -> None:
    with pytest.raises(RewardError, match="outside its range"):
        VerlReward(lambda **_: returned)(ITEM, Completion("x"))


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
from groupwise.core import Completion, Message, make_example
from groupwise.rewards.adapters import VerlReward

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
path = "verl.utils.reward_score.default_compute_score"
gsm8k = VerlReward(path, kind="truth", data_source="openai/gsm8k")
item = make_example([Message("user", "?")], cluster="g", label="18")
values = [gsm8k(item, Completion(text)).value for text in ("#### 18", "#### 19", "18")]
print("RESULT" + json.dumps([outputs, values]))
"""


@pytest.mark.slow
def test_verl_loads_and_calls_it(tmp_path: Path) -> None:
    folder = os.environ.get("GROUPWISE_VERL")
    if not folder:
        pytest.skip("needs verl: pip install --target FOLDER verl, then GROUPWISE_VERL=FOLDER")
    (tmp_path / "plugin.py").write_text(PLUGIN)
    outputs, values = run_beside(folder, DRIVER, tmp_path / "plugin.py")
    assert [output["reward_score"] for output in outputs] == [1.0, 0.0, 0.0]
    assert [output["reward_extra_info"]["invalid"] for output in outputs] == [0.0, 0.0, 1.0]
    assert values == [1.0, 0.0, 0.0]
