import inspect
import math
import os
from pathlib import Path
from types import MappingProxyType

import numpy as np
import pytest
from foreign_rewards import Seen, run_beside

from groupwise.core import Completion, Example, RewardError, Score
from groupwise.rewards import LabelMatch, LabelParser, RewardKind, RewardSet
from groupwise.rewards.adapters import VerlScore, make_swift_orm

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
    orm = make_swift_orm(RewardSet({"label": (LabelMatch(PARSER), 1)}))()
    assert orm(["on-task", "off-task"], solution=[None, "on-task"]) == [None, 0.0]


def test_prompts_with_pictures_keep_their_text() -> None:
    seen = Seen()
    parts = [{"type": "image", "image": object()}, {"type": "text", "text": "Is it?"}]
    prompt = [{"role": "system", "content": "Look."}, {"role": "user", "content": parts}]
    orm = make_swift_orm(RewardSet({"seen": (seen, 1)}))()
    orm(["is"], messages=[[*prompt, {"role": "assistant", "content": "It"}]])
    [(example, _)] = seen.given
    assert [message.text for message in example.prompt] == ["Look.", "Is it?"]


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


def test_what_numpy_and_other_mappings_bring_is_read() -> None:
    seen, options = Seen(), np.array(["x", "y"], dtype=object)
    extra = {"options": options, "index": np.int64(7), "f": print}
    extra["more"] = MappingProxyType({"sizes": options})
    VerlScore(RewardSet({"seen": (seen, 1)}))("mmlu", "A", np.int64(3), extra_info=extra)
    [(example, _)] = seen.given
    assert example.label == "3"
    assert example.fields == {
        **{"data_source": "mmlu", "options": ["x", "y"], "index": 7},
        "more": {"sizes": ["x", "y"]},
    }


def test_an_answer_that_cannot_be_scored_is_an_error_or_a_chosen_number() -> None:
    with pytest.raises(RewardError, match=r"is unscored .*unscored="):
        VerlScore(REWARDS)("on_task", "on-task", None)
    got = VerlScore(REWARDS, unscored=0.25)("on_task", "on-task", None)
    assert got["score"] == 0.25
    assert math.isnan(got["reward/label"])
    with pytest.raises(RewardError, match="out of range"):
        VerlScore(REWARDS, unscored=-1.0)


PLUGIN_VERL_SCORE = """
from groupwise.rewards import LabelParser, LabelMatch, RewardSet
from groupwise.rewards.adapters import VerlScore

parser = LabelParser(labels=("on-task", "off-task"))
compute_score = VerlScore(RewardSet({"label": (LabelMatch(parser), 1.0)}))
"""

DRIVER_VERL_SCORE = """
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
    (tmp_path / "plugin.py").write_text(PLUGIN_VERL_SCORE)
    outputs = run_beside(folder, DRIVER_VERL_SCORE, tmp_path / "plugin.py")
    assert [output["reward_score"] for output in outputs] == [1.0, 0.0, 0.0]
    assert [output["reward_extra_info"]["invalid"] for output in outputs] == [0.0, 0.0, 1.0]
