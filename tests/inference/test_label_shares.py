import math
from collections import Counter
from dataclasses import replace

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from groupwise.core import Message, ModelError, make_example
from groupwise.inference.labels import find_label_tokens, list_spellings, share_labels
from groupwise.inference.local import LocalModel, draw_uniforms, pick_tokens
from groupwise.inference.model import RequestError, Sampling, TokenChance
from groupwise.models.policy import load_policy
from groupwise.models.tokenizing import train_tokenizer

LABELS = ("yes", "no")


@pytest.fixture(scope="module")
def tokenizer():
    words = [
        f"{lead}{word}" for word in ("yes", "Yes", "no", "No", "on", "off") for lead in ("", " ")
    ]
    return train_tokenizer([" ".join(words)] * 50 + ["通过", "不通过"] * 50)


def listed(**chances):
    return [TokenChance(text.encode(), math.log(p)) for text, p in chances.items()]


def test_every_distinct_token_of_a_label_counts_once():
    tokens = listed(**{"yes": 0.3, " yes": 0.2, "Yes": 0.1, "no": 0.1, " NO": 0.1, "other": 0.2})
    shares = share_labels([*tokens, tokens[0]], LABELS)
    assert shares.shares == {"yes": pytest.approx(0.75), "no": pytest.approx(0.25)}


def test_tokens_of_both_labels_are_left_out():
    labels = ("on-task", "off-task")
    tokens = listed(**{"on": 0.3, "off": 0.1, "o": 0.5, "O": 0.1})
    assert share_labels(tokens, labels).shares["on-task"] == pytest.approx(0.75)
    with pytest.raises(RequestError, match="none of the 2"):
        share_labels(listed(o=0.5, O=0.4), labels)


def test_only_the_longest_beginning_of_a_spelling_is_its_first_token():
    """Blank and longer ones are none."""
    shares = share_labels(listed(n=0.2, no=0.2, yes=0.6), LABELS)
    assert shares.shares["no"] == pytest.approx(0.25)
    with pytest.raises(RequestError):
        share_labels(listed(**{" ": 0.5, "none": 0.3, "yesterday": 0.2}), LABELS)


def test_half_characters_match_by_their_bytes():
    first = "不".encode()
    tokens = [TokenChance(first[:2], math.log(0.6)), TokenChance("通".encode(), math.log(0.4))]
    assert share_labels(tokens, ("通过", "不通过")).shares["不通过"] == pytest.approx(0.6)


def test_a_share_that_the_list_does_not_tell_is_refused():
    tokens = listed(yes=0.05, a=0.05, b=0.05)
    assert share_labels(tokens, LABELS).error > 0.5
    with pytest.raises(RequestError, match="within") as caught:
        share_labels(tokens, LABELS, max_error=0.05)
    assert caught.value.cause == "unlisted"
    sure = share_labels(listed(yes=0.99, a=0.0099), LABELS, max_error=0.05)
    assert sure.shares == {"yes": 1.0, "no": 0.0}
    assert 0 < sure.error <= 0.01


def test_with_the_tokenizer_only_real_first_tokens_count(tokenizer):
    known = {
        label: [tokenizer.decode([i]) for i in ids]
        for label, ids in find_label_tokens(tokenizer, LABELS).items()
    }
    begun = "YE"  # begins a spelling, and is no first token of one
    assert begun not in known["yes"]
    tokens = listed(**{known["yes"][0]: 0.3, begun: 0.3, known["no"][0]: 0.1, "x": 0.3})
    assert share_labels(tokens, LABELS).shares["yes"] > 0.8
    assert share_labels(tokens, LABELS, tokenizer=tokenizer).shares["yes"] == pytest.approx(0.75)
    with pytest.raises(ModelError, match="no first token"):
        share_labels(tokens, ("yes", "yes-man"), tokenizer=tokenizer)


@given(st.data())
def test_the_true_share_is_within_the_error(tokenizer, data):
    """Whatever the model thinks, and wherever the list ends: the bound holds."""
    ids = find_label_tokens(tokenizer, LABELS)
    vocabulary = sorted({i for own in ids.values() for i in own} | set(range(40, 60)))
    weights = data.draw(
        st.lists(st.floats(1e-6, 1.0), min_size=len(vocabulary), max_size=len(vocabulary))
    )
    chances = {i: w / sum(weights) for i, w in zip(vocabulary, weights, strict=True)}
    true = sum(chances[i] for i in ids["yes"])
    true /= true + sum(chances[i] for i in ids["no"])
    num_listed = data.draw(st.integers(1, len(chances)))
    top = sorted(chances, key=lambda i: -chances[i])[:num_listed]
    tokens = [TokenChance(tokenizer.decode([i]).encode(), math.log(chances[i])) for i in top]
    try:
        shares = share_labels(tokens, LABELS, tokenizer=tokenizer)
    except RequestError:
        assume(False)
    assert abs(shares.shares["yes"] - true) <= shares.error + 1e-9
    if num_listed == len(chances):
        assert shares.error <= 1e-9


def list_firsts(tokenizer, texts):
    return {tokenizer.encode(text, add_special_tokens=False)[0] for text in texts}


def test_every_spelling_counts_once(tokenizer):
    assert list_spellings("通过") == ("通过", " 通过")
    assert len(list_spellings("yes")) == 6
    found = find_label_tokens(tokenizer, LABELS)
    for label, tokens in found.items():
        assert len(tokens) == len(set(tokens)) > 1
        spellings = [label, f" {label}", label.capitalize(), f" {label.capitalize()}"]
        assert list_firsts(tokenizer, spellings) <= set(tokens)


def test_first_tokens_of_both_labels_are_left_out(tokenizer):
    labels = ("on-task", "off-task")
    firsts = {label: list_firsts(tokenizer, [label.upper()]) for label in labels}
    assert firsts["on-task"] == firsts["off-task"]  # the O of ON and OFF
    found = find_label_tokens(tokenizer, labels)
    assert not set(found["on-task"]) & set(found["off-task"])
    assert all(found.values())
    for tokens in found.values():
        assert not set(tokens) & firsts["on-task"]


def test_labels_without_a_first_token_of_their_own_are_refused(tokenizer):
    found = find_label_tokens(tokenizer, ("通过", "不通过"))
    assert not set(found["通过"]) & set(found["不通过"])
    with pytest.raises(ModelError, match=r"'yes' has no first token of its own.*differ"):
        find_label_tokens(tokenizer, ("yes", "yes, but"))


LOGITS = st.one_of(st.floats(-30, 30), st.just(-math.inf))


@pytest.fixture(scope="module")
def policy(text_folder):
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
def test_completions_have_the_frequencies_of_the_softmax(policy, shaping):
    sampling = Sampling(**({"temperature": 3.0, "max_new_tokens": 1, "seed": 5} | shaping))
    example, num_drawn = make_example([Message("user", "?")], cluster="short"), 3000
    engine = LocalModel(policy)
    [drawn] = engine.generate([example], sampling=sampling, num_completions=num_drawn)
    counts = Counter(completion.token_ids[0] for completion in drawn)
    shares = shape(find_logits(policy, example) / sampling.temperature, sampling)
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


def test_a_seeded_completion_does_not_depend_on_what_else_is_asked(policy, text_examples):
    sampling = Sampling(temperature=3.0, max_new_tokens=6, seed=3)

    def ask(examples, *, batch_size=16, num_completions=3):
        found = LocalModel(policy, batch_size=batch_size).generate(
            examples, sampling=sampling, num_completions=num_completions
        )
        return dict(zip((example.id for example in examples), found, strict=True))

    whole = ask(text_examples)
    assert len({c.token_ids for found in whole.values() for c in found}) == 3 * len(whole)
    assert ask(text_examples, batch_size=1) == ask(text_examples[::-1], batch_size=3) == whole
    few = ask(text_examples[2:5], num_completions=2)
    assert few == {id_: whole[id_][:2] for id_ in few}


def test_two_examples_draw_apart_though_they_ask_the_same(policy, text_examples):
    examples = [replace(text_examples[0], id=id_) for id_ in ("one", "other")]
    sampling = Sampling(temperature=3.0, max_new_tokens=8, seed=3)
    [[one], [other]] = LocalModel(policy).generate(examples, sampling=sampling)
    assert one != other
