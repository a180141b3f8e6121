from pathlib import Path

import pytest
from foreign_rewards import Seen

from groupwise.core import Completion, Message, RewardError, Score, make_example
from groupwise.rewards import (
    ExactMatch,
    LabelMatch,
    LabelParser,
    Reward,
    RewardSet,
    SoftOverlong,
)
from groupwise.rewards.adapters import ScoreRange, TrlFunction, TrlReward

PARSER = LabelParser(labels=("on-task", "off-task"))


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


def test_what_could_not_be_scored_stays_none() -> None:
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


@pytest.mark.parametrize("path", ["no_such_package.f", "trl.rewards.no_such_reward", "f", ".f", ""])
def test_a_path_that_leads_nowhere_is_an_error(path: str) -> None:
    with pytest.raises(RewardError):
        TrlReward(path)


def test_what_cannot_be_called_is_no_reward() -> None:
    with pytest.raises(RewardError, match="not a reward function"):
        TrlReward("groupwise.__version__")
