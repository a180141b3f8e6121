import inspect
import math
import os
from pathlib import Path
from types import MappingProxyType

import numpy as np
import pytest
from foreign_rewards import Seen, run_beside

from groupwise.core import Completion, Example, Message, RewardError, Score, make_example
from groupwise.rewards import (
    ExactMatch,
    LabelMatch,
    LabelParser,
    Reward,
    RewardKind,
    RewardSet,
    SoftOverlong,
)
from groupwise.rewards.adapters import ScoreRange, TrlFunction, TrlReward, VerlScore, make_swift_orm

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


def say(text: str) -> list[dict[str, str]]:
    return [{"role": "assistant", "content": text}]


def test_a_set_is_called_as_trl_calls_and_logs_its_parts() -> None:
    seen = Seen()
    rewards = RewardSet({"label": (LabelMatch(PARSER), 3), "seen": (seen, 1)})
    logged: dict[str, float] = {}
    values = TrlFunction(rewards, label="answer", end_token_ids=[7])(
        prompts=[[{"role": "user", "content": "Is it?"}], "Is it not?", "?"],
        completions=[say("on-task"), "off-task", say("what")],
        completion_ids=[[1, 7], [2], [7]],
        log_metric=logged.__setitem__,
        log_extra=None,
        trainer_state=object(),
        answer=["on-task", "on-task", "on-task"],
        level=[1, 2, 3],
        image=[object(), None, 3],
        environments=[object()] * 3,
    )
    assert values == pytest.approx([0.875, 0.125, 0.0])
    assert logged == {
        "invalid": 1 / 3,
        "unscored": 0.0,
        "reward/label": 1 / 3,
        "reward/seen": 0.5,
    }
    examples = [example for example, _ in seen.given]
    assert [example.prompt[-1].text for example in examples] == ["Is it?", "Is it not?", "?"]
    assert [example.fields["level"] for example in examples] == [1, 2, 3]
    assert not {"image", "environments"} & set(examples[0].fields)
    assert "log_extra" not in examples[0].fields
    assert "answer" not in examples[0].fields
    assert [c.finish_reason for _, c in seen.given] == ["stop", "length", "stop"]
    assert [c.token_ids for _, c in seen.given] == [(1, 7), (2,), (7,)]


def test_prompts_with_pictures_keep_their_text() -> None:
    seen = Seen()
    parts = [{"type": "image", "image": object()}, {"type": "text", "text": "Is it?"}]
    prompt = [{"role": "system", "content": "Look."}, {"role": "user", "content": parts}]
    TrlFunction(RewardSet({"seen": (seen, 1)}))(
        prompts=[[*prompt, {"role": "assistant", "content": "It"}]], completions=["is"]
    )
    [(example, _)] = seen.given
    assert [message.text for message in example.prompt] == ["Look.", "Is it?"]
    # What could not be scored stays None.
    function = TrlFunction(RewardSet({"label": (LabelMatch(PARSER), 1)}))
    assert function(prompts=["?"], completions=["on-task"]) == [None]


def test_a_set_trains_in_a_stock_trainer(text_folder: Path, tmp_path: Path) -> None:
    from datasets import Dataset
    from trl.trainer.grpo_config import GRPOConfig
    from trl.trainer.grpo_trainer import GRPOTrainer

    rewards = RewardSet(
        {
            "length": (SoftOverlong(max_tokens=8, cache_tokens=8), 1),
            "exact": (ExactMatch(), 1),
        }
    )
    rows = [
        {"prompt": [{"role": "user", "content": f"Is {n} odd?"}], "label": "yes", "number": n}
        for n in range(4)
    ]
    arguments = GRPOConfig(
        output_dir=str(tmp_path),
        max_steps=1,
        per_device_train_batch_size=4,
        num_generations=2,
        max_completion_length=8,
        logging_steps=1,
        report_to=[],
        use_cpu=True,
    )
    trainer = GRPOTrainer(
        str(text_folder),
        reward_funcs=[TrlFunction(rewards)],
        args=arguments,
        train_dataset=Dataset.from_list(rows),
    )
    trainer.train()
    logs = trainer.state.log_history[0]
    assert 0.0 <= logs["reward"] <= 1.0
    assert logs["rewards/groupwise/mean"] == pytest.approx(logs["reward"])
    mean = 1 - logs["completions/mean_length"] / 8
    assert logs["reward/length"] == pytest.approx(mean)
    assert logs["unscored"] == 0.0


ITEM = make_example([Message("user", "1 + 1?")], cluster="g", label="$2$", fields={"level": 3})


def test_rewards_of_trl_are_imported_by_their_path() -> None:
    reward = TrlReward("trl.rewards.think_format_reward", kind="format")
    assert isinstance(reward, Reward)
    assert (reward.name, reward.kind) == ("think_format_reward", "format")
    assert reward(ITEM, Completion("<think>a</think>b")).value == 1.0
    assert reward(ITEM, Completion("b")).value == 0.0
    accuracy = TrlReward("trl.rewards:accuracy_reward", kind="truth", label="solution")
    scores = accuracy.score_batch([ITEM] * 2, [Completion(r"\boxed{2}"), Completion(r"\boxed{3}")])
    assert [score.value for score in scores] == [1.0, 0.0]
    combined = RewardSet({"a": (reward, 1), "b": (accuracy, 3)})
    assert combined.score(ITEM, Completion("<think>a</think>\\boxed{2}")).value == 1.0


def test_a_function_gets_what_trl_would_give_it() -> None:
    def function(prompts, completions, completion_ids, level, label, **_):
        assert prompts == ["1 + 1?"]
        assert completions == ["two"]
        assert (completion_ids, level, label) == ([[5, 6]], [3], ["$2$"])
        return [None]

    reward = TrlReward(function, is_conversational=False)
    got = reward(ITEM, Completion("two", (5, 6)))
    assert got == Score(None, "function gave no value")


@pytest.mark.parametrize(
    ("value", "expected"),
    [(-1, 0.0), (0, 0.5), (1.0, 1.0), (True, 1.0), (None, None), (float("nan"), None)],
)
def test_another_range_is_mapped(value: object, expected: float | None) -> None:
    reward = TrlReward(lambda **_: [value], values=ScoreRange(-1, 1))
    assert reward(ITEM, Completion("x")).value == expected


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        ([2.0], r"outside its range; got 2.0; expected a number in \[0, 1\]"),
        ([-0.1], "outside its range"),
        (["1"], "outside its range"),
        ([1.0, 1.0], "got 2 values; expected a list of 1"),
        (1.0, "got float"),
    ],
)
def test_what_is_no_value_in_range_is_an_error(returned: object, message: str) -> None:
    with pytest.raises(RewardError, match=message):
        TrlReward(lambda **_: returned, name="mine")(ITEM, Completion("x"))


@pytest.mark.parametrize("bounds", [(1.0, 0.0), (0.0, 0.0), (0.0, float("inf"))])
def test_a_range_that_is_none_is_refused(bounds: tuple[float, float]) -> None:
    with pytest.raises(RewardError, match="not a range"):
        ScoreRange(*bounds)


def test_a_path_that_leads_to_no_reward_is_an_error() -> None:
    for path in ("no_such_package.f", "trl.rewards.no_such_reward", "f", ".f", ""):
        with pytest.raises(RewardError):
            TrlReward(path)
    with pytest.raises(RewardError, match="not a reward function"):
        TrlReward("groupwise.__version__")


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
