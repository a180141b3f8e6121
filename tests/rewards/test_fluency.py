"""Fluency: the mean log-probability that a base gives an answer, against a threshold."""

from pathlib import Path

import pytest
import torch

from groupwise.core import Completion, Message, RewardError, make_example
from groupwise.models import Policy, load_policy
from groupwise.rewards import Fluency, RewardSet, average_log_probs, find_threshold

ASKED = make_example([Message("user", "Say something.")], cluster="a")
TEXTS = ["The sea is blue and quiet in the morning.", "  blue sea  ", "海很蓝，也很安静。", "a", ""]


@pytest.fixture(scope="module")
def base(text_folder: Path) -> Policy:
    return load_policy(text_folder)


def complete(*texts: str) -> list[Completion]:
    return [Completion(text) for text in texts]


def test_each_token_after_the_first_counts_given_those_before_and_no_prompt(base: Policy):
    [found] = average_log_probs(base, complete(TEXTS[0]))
    ids = torch.tensor([base.tokenizer(TEXTS[0], add_special_tokens=False)["input_ids"]])
    with torch.no_grad():
        shares = base.model(input_ids=ids).logits.double().log_softmax(-1)[0]
    expected = [shares[n, ids[0, n + 1]].item() for n in range(ids.shape[1] - 1)]
    assert found == pytest.approx(sum(expected) / len(expected), abs=1e-5)


def test_a_batch_says_what_each_answer_alone_says(base: Policy):
    many = complete(*TEXTS, *[f"{text} again" for text in TEXTS * 8])
    together = average_log_probs(base, many)
    alone = [average_log_probs(base, [one])[0] for one in many]
    assert [one is None for one in together] == [one is None for one in alone]
    pairs = [(a, b) for a, b in zip(together, alone, strict=True) if a is not None]
    assert [a for a, _ in pairs] == pytest.approx([b for _, b in pairs], abs=1e-5)
    assert together[4] is None  # an empty answer


def test_the_value_is_one_from_the_threshold_on_and_falls_by_a_half_a_nat(base: Policy):
    [mean] = average_log_probs(base, complete(TEXTS[0]))
    assert mean is not None
    thresholds = (mean - 5, mean, mean + 1, mean + 2, mean + 9)
    rewards = [Fluency(base, threshold=one) for one in thresholds]
    values = [reward(ASKED, Completion(TEXTS[0])).value for reward in rewards]
    assert values == pytest.approx([1.0, 1.0, 0.5, 0.0, 0.0], abs=1e-5)


def test_an_answer_with_nothing_to_read_earns_nothing(base: Policy):
    reward = Fluency(base, threshold=-100.0)
    found = reward.score_batch([ASKED] * 3, complete("", "  \n", TEXTS[0]))
    assert [score.value for score in found] == [0.0, 0.0, 1.0]


def test_without_a_base_nothing_is_computed_and_other_rewards_count_alone():
    class Long:
        name, kind = "long", "truth"

        def __call__(self, example, completion):
            from groupwise.core import Score

            return Score(float(len(completion.text) > 3))

    assert Fluency()(ASKED, Completion("words")).value is None
    rewards = RewardSet({"long": (Long(), 1.0), "fluency": (Fluency(), 9.0)})
    assert rewards.score(ASKED, Completion("words")).value == 1.0
    assert rewards.weigh(ASKED) == {"long": 1.0}


def test_the_threshold_is_what_so_many_of_the_answers_are_below(base: Policy):
    words = ("the", "a", "blue", "quiet", "cold", "old", "new", "big")
    answers = complete(*[f"{word} sea" * 3 for word in words])
    means = average_log_probs(base, answers)
    threshold = find_threshold(base, answers, percentile=25)
    assert sum(mean < threshold for mean in means if mean is not None) == 2
    with pytest.raises(RewardError, match="the base model's own answers are empty"):
        find_threshold(base, complete("", ""), percentile=5)
