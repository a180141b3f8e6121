"""Answers of the base for the audit of rewards."""

from types import SimpleNamespace
from typing import ClassVar

import pytest

from groupwise.core import Completion, ConfigError, Message, make_example
from groupwise.flow import sampling
from groupwise.flow.sampling import make_sampler

EXAMPLES = [make_example([Message("user", f"Say {n}")], cluster=str(n)) for n in range(9)]


def make_config(*, is_tiny=False):
    return SimpleNamespace(
        seed=0,
        model=SimpleNamespace(is_tiny=is_tiny, base="some/base"),
        grpo=SimpleNamespace(temperature=0.8, max_new_tokens=5),
        evaluation=SimpleNamespace(batch_size=4),
    )


class Task:
    def find_base(self, config, run):
        return run / "base" if config.model.is_tiny else config.model.base


class Engine:
    """Says its prompt again, and counts how it was asked."""

    asked: ClassVar[list] = []

    def __init__(self, policy, *, batch_size):
        self.policy = policy

    def generate(self, examples, *, sampling, num_completions):
        self.asked.append((self.policy, len(examples), num_completions, sampling.temperature))
        return [[Completion(e.prompt[0].text)] * num_completions for e in examples]


@pytest.fixture
def engine(monkeypatch):
    monkeypatch.setattr("groupwise.inference.LocalEngine", Engine)
    monkeypatch.setattr("groupwise.flow.asking.open_policy", lambda config, base: base)
    monkeypatch.setattr(Engine, "asked", [])
    return Engine


@pytest.mark.parametrize(
    ("number", "prompts", "each"), [(8, 2, 4), (9, 3, 4), (2, 1, 2), (99, 9, 4)]
)
def test_a_small_batch_comes_first_and_says_how_long_it_takes(
    tmp_path, engine, number, prompts, each
):
    said: list[str] = []
    found = make_sampler(Task()).draw(make_config(), tmp_path, EXAMPLES, number, said.append)
    assert engine.asked == [("some/base", 1, each, 0.8), ("some/base", prompts - 1, each, 0.8)]
    assert [len(texts) for texts in found.values()] == [each] * prompts
    texts = {example.id: example.prompt[0].text for example in EXAMPLES}
    assert all(texts[name] == answers[0] for name, answers in found.items())
    assert (
        f"{prompts * each} answers of the base are sampled, {each} to a prompt: at most" in said[0]
    )


def test_a_base_that_the_run_builds_is_asked_when_it_is_there(tmp_path, engine):
    config = make_config(is_tiny=True)
    with pytest.raises(ConfigError, match="built by the run"):
        sampling.draw_answers(Task(), config, tmp_path, EXAMPLES, number=4, say=print)
    (tmp_path / "base").mkdir()
    assert sampling.draw_answers(Task(), config, tmp_path, EXAMPLES, number=4, say=print)
