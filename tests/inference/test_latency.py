"""Answers that are asked one by one."""

from types import SimpleNamespace

import pytest

from groupwise.inference import LocalEngine, Sampling, time_answers
from groupwise.models import load_policy


@pytest.mark.parametrize("num_timed", [0, 3, 99])
def test_the_first_answers_are_timed_alone(text_folder, text_examples, monkeypatch, num_timed):
    clock, asked = [0.0], []

    def generate(engine, examples, *, sampling):
        asked.append((engine.batch_size, *(example.id for example in examples)))
        clock[0] += 0.5 * len(asked)

    monkeypatch.setattr(LocalEngine, "generate", generate)
    monkeypatch.setattr(
        "groupwise.inference.local.time", SimpleNamespace(perf_counter=lambda: clock[0])
    )
    found = time_answers(
        load_policy(text_folder), text_examples, sampling=Sampling(), num_timed=num_timed
    )
    timed = text_examples[:num_timed]
    assert asked == [(1, example.id) for example in timed]
    assert found[: len(timed)] == [0.5 * n for n in range(1, len(timed) + 1)]
    assert found[len(timed) :] == [None] * (len(text_examples) - len(timed))
