"""The demo's folder: its splits share no topic and no word, and its checks say what they see."""

from pathlib import Path

import pytest

from groupwise.core import Completion, Message, load_config, make_example, read_jsonl
from groupwise.rewards import FunctionReward
from groupwise_recipes.task.config import TaskConfig

FOLDER = Path(__file__).parents[3] / "examples" / "demo"
ASKED = make_example(
    [Message("user", "a river")],
    cluster="a river",
    fields={"topic": "a river", "first": "never", "second": "together"},
)


def test_topics_and_words_of_each_split_occur_in_no_other():
    config = load_config(TaskConfig, FOLDER / "task.yaml")
    assert config.measures["good"].all_of == ("passes", "fluent")
    rows = read_jsonl(FOLDER / "prompts.jsonl")
    topics = [(row["split"], row["topic"]) for row in rows]
    words = [(row["split"], row[name]) for row in rows for name in ("first", "second")]
    for pairs in (topics, words):
        assert len({value for _, value in pairs}) == len(set(pairs))
    assert len({(row["topic"], row["first"], row["second"]) for row in rows}) == len(rows)
    assert sum(row["split"] == "test" for row in rows) >= 200


@pytest.mark.parametrize(
    ("text", "share"),
    [
        ("The river never brings us together.", 1.0),
        ("The river never brings us together", 5 / 6),
        ("The river brings us together.", 5 / 6),
        ("The river never rests. It brings us together.", 5 / 6),
        (f"The river never{' really' * 12} brings us together.", 5 / 6),
        ('The sentence uses "never" and "together" to describe the river.', 5 / 6),
        ("The words never and together describe the river.", 5 / 6),
        ("", 0.0),
    ],
)
def test_an_answer_earns_the_share_of_the_checks_that_it_passes(text: str, share: float):
    def rate(name: str) -> float | None:
        file = FOLDER / "rewards.py"
        reward = FunctionReward(f"{file}:{name}", kind="other", messages=False, values=(0.0, 1.0))
        return reward(ASKED, Completion(text)).value

    assert rate("checks") == pytest.approx(share)
    assert rate("passes") == float(share == 1.0)
