import pytest

from groupwise.core import Score
from groupwise.rewards import RewardSet
from groupwise.training.grpo import RewardFunction

END = 7


class ByText:
    """Scores what the text says; remembers what it was given."""

    def __init__(self, name):
        self.name = name
        self.given = []

    def __call__(self, example, completion):
        self.given.append((example, completion))
        value = completion.text.split(self.name)[1].split()[0]
        if value == "None":
            return Score(None, "not there")
        return Score(float(value), invalid=completion.text.endswith("!"))


@pytest.fixture
def scored(text_examples):
    rewards = ByText("a"), ByText("b")
    function = RewardFunction(
        text_examples,
        RewardSet({"a": (rewards[0], 3.0), "b": (rewards[1], 1.0)}),
        end_token_ids=[END],
    )
    logged = {}
    texts = ["a 1 b 0", "a None b None", "a None b 0.5", "a 0 b 0 !"]
    values = function(
        prompts=["ignored"] * 4,
        completions=[[{"role": "assistant", "content": text}] for text in texts],
        completion_ids=[[1, END], [2], [], [3, END]],
        place=[2, 2, 5, 0],
        log_metric=logged.__setitem__,
    )
    return values, logged, rewards[0].given


def test_values_are_weighted_and_none_stays_none(scored):
    values, _, _ = scored
    assert values == [0.75, None, None, 0.0]


def test_parts_and_shares_are_logged(scored):
    _, logged, _ = scored
    assert logged == pytest.approx(
        {
            "invalid": 0.25,
            "unscored": 0.5,
            "reward/a": 0.5,
            "reward/a_std": 0.5,
            "reward/b": 0.5 / 3,
            "reward/b_std": (((0.5 - 0.5 / 3) ** 2 + 2 * (0.5 / 3) ** 2) / 3) ** 0.5,
        }
    )


def test_rewards_see_the_example_and_how_the_completion_ended(scored, text_examples):
    _, _, given = scored
    assert [example for example, _ in given] == [text_examples[place] for place in (2, 2, 5, 0)]
    assert [c.finish_reason for _, c in given] == ["stop", "length", "length", "stop"]
    assert [c.token_ids for _, c in given] == [(1, END), (2,), (), (3, END)]
