"""Draws by a row's key: the right distribution, whatever else is drawn."""

import math
from collections import Counter
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from groupwise.core import Message, make_example
from groupwise.inference import LocalEngine, Sampling
from groupwise.inference.row_draws import draw_uniforms, pick_tokens
from groupwise.models import load_policy

LOGITS = st.one_of(st.floats(-30, 30), st.just(-math.inf))


@pytest.fixture(scope="module")
def text(text_folder):
    return load_policy(text_folder)


@given(st.lists(LOGITS, min_size=1, max_size=8), st.floats(0, 1, exclude_max=True))
def test_a_number_falls_into_the_share_of_its_token(logits, number):
    logits.append(0.0)  # one that can be drawn
    scores = torch.tensor([logits])
    [token] = pick_tokens(scores, torch.tensor([number], dtype=torch.float64)).tolist()
    shares = scores[0].softmax(-1).double()
    assert shares[token] > 0
    below = shares[:token].sum().item() / shares.sum().item()
    assert below - 1e-9 <= number <= below + (shares[token] / shares.sum()).item() + 1e-9


def test_equally_spaced_numbers_give_every_token_its_share():
    shares = torch.tensor([0.5, 0.0, 0.3, 0.15, 0.05])
    numbers = (torch.arange(1000, dtype=torch.float64) + 0.5) / 1000
    found = pick_tokens(shares.log().expand(1000, -1), numbers)
    assert found.bincount(minlength=5).tolist() == [500, 0, 300, 150, 50]


def test_rare_tokens_of_a_large_vocabulary_are_not_lost():
    """In float32 the sums would no longer move."""
    scores = torch.zeros(1, 150_001)
    scores[0, 0] = 25.0
    rest = 150_000 / (150_000 + math.exp(25.0))
    numbers = 1 - rest + rest * (torch.arange(300, dtype=torch.float64) + 0.5) / 300
    found = pick_tokens(scores.expand(300, -1), numbers)
    assert found.tolist() == pytest.approx([250 + 500 * n for n in range(300)], abs=2)


def test_numbers_follow_from_the_key_and_fewer_are_a_prefix():
    keys = [(seed, number) for seed in (0, 1, 2**31 - 1) for number in range(3)]
    found = draw_uniforms(keys, 6)
    assert found.dtype == torch.float64
    assert found.shape == (9, 6)
    assert len(found.flatten().unique()) == 54
    assert draw_uniforms(keys[4:5], 3).equal(found[4:5, :3])


@pytest.mark.parametrize(
    "shaping",
    [
        pytest.param({}, marks=pytest.mark.slow),
        pytest.param({"temperature": 0.7}, marks=pytest.mark.slow),
        {"top_p": 0.6},
        pytest.param({"top_k": 7}, marks=pytest.mark.slow),
        pytest.param({"min_p": 0.3}, marks=pytest.mark.slow),
    ],
)
def test_completions_have_the_frequencies_of_the_softmax(text, shaping):
    sampling = Sampling(**({"temperature": 3.0, "max_new_tokens": 1, "seed": 5} | shaping))
    example, num_drawn = make_example([Message("user", "?")], cluster="short"), 3000
    engine = LocalEngine(text)
    [drawn] = engine.generate([example], sampling=sampling, num_completions=num_drawn)
    counts = Counter(completion.token_ids[0] for completion in drawn)
    shares = shape(find_logits(text, example) / sampling.temperature, sampling)
    assert set(counts) <= set(shares.nonzero().flatten().tolist())
    often = [token for token in range(len(shares)) if shares[token] * num_drawn >= 5]
    pairs = [(counts[token], float(shares[token]) * num_drawn) for token in often]
    rest = num_drawn - sum(expected for _, expected in pairs)
    if rest >= 5:
        pairs.append((num_drawn - sum(count for count, _ in pairs), rest))
    distance = sum((count - expected) ** 2 / expected for count, expected in pairs)
    freedom = len(pairs) - 1
    assert freedom > 3
    assert distance < freedom + 4 * math.sqrt(2 * freedom)


@torch.no_grad()
def find_logits(policy, example):
    inputs = policy.processor(text=[policy.render_prompt(example)], return_tensors="pt")
    return policy.model(**inputs.to(policy.model.device)).logits[0, -1].double().cpu()


def shape(logits, sampling):
    """Return the shares of tokens after top-k, min-p and top-p, computed one by one."""
    shares, order = logits.softmax(-1).sort(descending=True)
    kept = shares >= sampling.min_p * shares[0]
    kept &= shares.cumsum(0) - shares < sampling.top_p
    if sampling.top_k:
        kept[sampling.top_k :] = False
    found = torch.zeros_like(shares)
    found[order[kept]] = shares[kept] / shares[kept].sum()
    return found


def test_a_seeded_completion_does_not_depend_on_what_else_is_asked(text, text_examples):
    sampling = Sampling(temperature=3.0, max_new_tokens=6, seed=3)

    def ask(examples, *, batch_size=16, num_completions=3):
        found = LocalEngine(text, batch_size=batch_size).generate(
            examples, sampling=sampling, num_completions=num_completions
        )
        return dict(zip((example.id for example in examples), found, strict=True))

    whole = ask(text_examples)
    assert len({c.token_ids for found in whole.values() for c in found}) == 3 * len(whole)
    assert ask(text_examples, batch_size=1) == ask(text_examples[::-1], batch_size=3) == whole
    few = ask(text_examples[2:5], num_completions=2)
    assert few == {id_: whole[id_][:2] for id_ in few}


def test_two_examples_draw_apart_though_they_ask_the_same(text, text_examples):
    examples = [replace(text_examples[0], id=id_) for id_ in ("one", "other")]
    sampling = Sampling(temperature=3.0, max_new_tokens=8, seed=3)
    [[one], [other]] = LocalEngine(text).generate(examples, sampling=sampling)
    assert one != other
