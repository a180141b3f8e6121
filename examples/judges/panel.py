"""A reward by the votes of several served models; who cannot tell abstains.

python examples/judges/panel.py URL=MODEL URL=MODEL URL=MODEL

An answer earns the share of the votes that say it is right. Without a majority of the judges it
has no score, which is not 0. In a recipe the reward stands in its ``RewardSet``.
"""

import sys

from groupwise.core import Completion, Example, Message, make_example
from groupwise.inference.server import ServerModel
from groupwise.inference.settings import ServerSettings
from groupwise.judges import GenerativeJudge, Panel, Question, load_prompt
from groupwise.rewards import Judged


def make_reward(servers: list[str]) -> Judged:
    """Return the reward by servers, each ``URL=MODEL``; different models err differently."""
    places = [ServerSettings(url=url, model=model) for url, _, model in map(split, servers)]
    prompt = load_prompt("correct")
    judges = [GenerativeJudge(ServerModel(place), prompt) for place in places]
    return Judged(Panel(judges), ask=ask, pay={"True": 1.0, "False": 0.0})


def split(server: str) -> tuple[str, str, str]:
    """Return the URL, ``=`` and the model."""
    return server.partition("=")


def ask(example: Example, completion: Completion) -> Question:
    """Return what the judges are asked about an answer."""
    return Question(
        {
            "question": example.prompt[-1].text,
            "reference": str(example.label),
            "answer": completion.text,
        }
    )


if __name__ == "__main__":
    reward = make_reward(sys.argv[1:])
    example = make_example([Message("user", "What is 2 + 2?")], cluster="1", label="4")
    for text in ("It is four.", "It is five."):
        score = reward(example, Completion(text))
        print(f"{text}  {score.value}  {score.reason}")
