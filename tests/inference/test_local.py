import asyncio
import json
import math
import shutil
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from mixed_prompts import encode_by_processor

from groupwise.core import DataError, Message, ModelError, make_example, open_picture, read_picture
from groupwise.inference.labels import find_label_tokens, list_spellings
from groupwise.inference.local import LocalModel, time_answers
from groupwise.inference.model import Sampling, run_on_shared_loop
from groupwise.models.policy import load_policy

GREEDY = Sampling(max_new_tokens=6)


@pytest.fixture(params=["vision", "text"])
def asked(request, vision, text, picture_examples, text_examples):
    """A policy and its prompts."""
    return (vision, picture_examples) if request.param == "vision" else (text, text_examples)


def generate(policy, examples, batch_size, **named):
    found = LocalModel(policy, batch_size=batch_size).generate(examples, sampling=GREEDY, **named)
    return [completion for [completion] in found]


def test_a_batch_gives_the_tokens_of_one_by_one(asked):
    policy, examples = asked
    alone = generate(policy, examples, 1)
    assert len({completion.token_ids for completion in alone}) > 1
    assert len({len(completion.token_ids) for completion in alone}) > 1
    assert generate(policy, examples, 8) == alone
    assert generate(policy, examples, 3) == alone


def test_what_waits_for_the_model_is_not_on_its_device(vision, picture_examples):
    elsewhere = replace(vision, model=SimpleNamespace(device=torch.device("meta")))
    [batch] = LocalModel(elsewhere).encode(picture_examples[:2])
    assert {value.device.type for value in batch.inputs.values()} == {"cpu"}


@pytest.mark.parametrize("ask", ["generate", "label_probabilities"])
def test_a_prompt_longer_than_the_model_takes_is_refused(text, text_examples, monkeypatch, ask):
    lengths = [len(text.tokenizer(text.render_prompt(e))["input_ids"]) for e in text_examples]
    longest = text_examples[lengths.index(max(lengths))]
    settings = {"sampling": GREEDY} if ask == "generate" else {"labels": ("yes", "no")}
    num_new_tokens = GREEDY.max_new_tokens if ask == "generate" else 1
    config = text.model.config.get_text_config()

    def answer(limit):
        monkeypatch.setattr(config, "max_position_embeddings", limit)
        return getattr(LocalModel(replace(text), batch_size=64), ask)(text_examples, **settings)

    assert len(answer(max(lengths) + num_new_tokens)) == len(text_examples)
    with pytest.raises(ModelError, match=f"{longest.id} is too long; got {max(lengths)} tokens"):
        answer(max(lengths) + num_new_tokens - 1)


def test_prompts_without_a_picture_join_those_with_one(vision, picture_examples, text_examples):
    examples = [*picture_examples[:3], *text_examples[:2], *picture_examples[3:5]]
    assert generate(vision, examples, 8) == generate(vision, examples, 1)


def test_pictures_among_words_are_seen_where_they_stand(vision, mixed_examples, text_examples):
    examples = [*mixed_examples, text_examples[0]]
    assert generate(vision, examples, 4) == generate(vision, examples, 1)
    shares = LocalModel(vision, batch_size=4).label_probabilities(examples, labels=("yes", "no"))
    tokens = find_label_tokens(vision.tokenizer, ("yes", "no"))
    for example, found in zip(mixed_examples, shares, strict=False):
        encoded = encode_by_processor(vision.processor, example)
        inputs = {name: value.to(vision.model.device) for name, value in encoded.items()}
        with torch.no_grad():
            scores = vision.model(**inputs).logits[0, -1].softmax(-1)
        masses = {label: float(scores[list(ids)].sum()) for label, ids in tokens.items()}
        assert found["yes"] == pytest.approx(masses["yes"] / sum(masses.values()), abs=1e-6)
    assert len({round(found["yes"], 6) for found in shares}) == len(examples)


def test_the_answer_follows_the_picture(vision, picture_examples):
    """Pictures that are swapped inside a batch would change the shares."""
    engine = LocalModel(vision, batch_size=8)
    straight = engine.label_probabilities(picture_examples, labels=("yes", "no"))
    back = engine.label_probabilities(picture_examples[::-1], labels=("yes", "no"))
    assert len({round(row["yes"], 4) for row in straight}) > 1
    for one, other in zip(straight, back[::-1], strict=True):
        assert one["yes"] == pytest.approx(other["yes"], abs=1e-5)


def test_completions_end_with_an_end_token_or_at_the_limit(text, text_examples):
    ends = text.end_token_ids
    whole = generate(text, text_examples, 8)
    assert {completion.finish_reason for completion in whole} == {"stop"}
    for completion in whole:
        assert completion.token_ids[-1] in ends
        assert not set(completion.token_ids[:-1]) & set(ends)
        assert completion.text == text.tokenizer.decode(completion.token_ids[:-1])
    engine = LocalModel(text, batch_size=8)
    cut = engine.generate(text_examples, sampling=Sampling(max_new_tokens=1))
    assert {c.finish_reason for [c] in cut} == {"length"}
    assert {len(c.token_ids) for [c] in cut} == {1}


def test_another_end_token_of_the_model_ends_a_completion(text, text_examples, monkeypatch):
    first = generate(text, text_examples, 8)[0].token_ids[0]
    monkeypatch.setattr(text.model.generation_config, "eos_token_id", [first])
    [ended, *_] = generate(text, text_examples, 8)
    assert (ended.token_ids, ended.finish_reason) == ((first,), "stop")


@pytest.fixture(scope="module")
def wishful(taught_text_folder, tmp_path_factory):
    """The policy of ``text`` in a folder that wants much of generation."""
    folder = tmp_path_factory.mktemp("wishful") / "base"
    shutil.copytree(taught_text_folder, folder)
    file = folder / "generation_config.json"
    common = load_policy(taught_text_folder).tokenizer("yes no a b")["input_ids"]
    wishes = {
        **{"do_sample": True, "temperature": 0.01, "top_k": 2, "top_p": 0.1, "min_p": 0.99},
        **{"repetition_penalty": 1.5, "no_repeat_ngram_size": 1, "typical_p": 0.01},
        **{"max_new_tokens": 3, "min_new_tokens": 2, "num_beams": 3},
        **{"bad_words_ids": [[one] for one in common], "suppress_tokens": common},
        **{"begin_suppress_tokens": common, "forced_bos_token_id": 7, "forced_eos_token_id": 7},
    }
    file.write_text(json.dumps({**json.loads(file.read_text()), **wishes}))
    return load_policy(folder)


@pytest.mark.parametrize("temperature", [0.0, 2.0])
def test_what_a_model_folder_wants_of_generation_is_not_used(
    text, wishful, text_examples, temperature
):
    sampling = Sampling(temperature=temperature, max_new_tokens=8, seed=3)
    answers = [
        LocalModel(policy).generate(text_examples, sampling=sampling) for policy in (text, wishful)
    ]
    assert answers[0] == answers[1]


def test_neither_training_nor_a_saved_policy_finds_what_its_base_wanted(text, wishful, tmp_path):
    """TRL, plain Transformers and vLLM read what is not said to them from the model."""
    wishful.save(tmp_path)
    wanted = text.model.generation_config
    saved = type(wanted).from_pretrained(tmp_path)
    assert wishful.model.generation_config.to_diff_dict() == wanted.to_diff_dict()
    assert saved.to_diff_dict() == wanted.to_diff_dict()
    assert wishful.end_token_ids == text.end_token_ids


def test_top_k_min_p_and_the_seed_shape_the_draws(text, text_examples):
    def draw(**changes):
        sampling = Sampling(temperature=5.0, max_new_tokens=8, seed=3)
        return LocalModel(text).generate(
            text_examples, sampling=sampling.model_copy(update=changes)
        )

    greedy = LocalModel(text).generate(text_examples, sampling=Sampling(max_new_tokens=8))
    state = torch.get_rng_state()
    assert draw() == draw() != draw(seed=4)
    assert torch.equal(torch.get_rng_state(), state)
    assert draw(seed=None) != draw(seed=None)
    assert draw(top_k=1) == draw(min_p=1.0) == greedy != draw()


def test_sampling_gives_groups_in_order(text, text_examples):
    torch.manual_seed(0)
    seen = []
    found = LocalModel(text, batch_size=3).generate(
        text_examples,
        sampling=Sampling(temperature=3.0, max_new_tokens=4),
        num_completions=4,
        report_progress=lambda done, total: seen.append((done, total)),
    )
    assert [len(group) for group in found] == [4] * len(text_examples)
    assert any(len({c.token_ids for c in group}) > 1 for group in found)
    assert seen == [(3, 8), (6, 8), (8, 8)]


def score_by_hand(policy, example, lead, labels):
    """Full softmax over the vocabulary, then the mass of each label's first tokens."""
    pictures = [open_picture(picture) for picture in example.pictures]
    named = {"images": [pictures]} if pictures else {}
    prompt = policy.render_prompt(example) + lead
    inputs = policy.processor(text=[prompt], return_tensors="pt", **named)
    with torch.no_grad():
        shares = policy.model(**inputs.to(policy.model.device)).logits[0, -1].double().softmax(-1)
    tokens = find_label_tokens(policy.tokenizer, labels)
    masses = {label: float(sum(shares[t] for t in set(ids))) for label, ids in tokens.items()}
    return {label: mass / sum(masses.values()) for label, mass in masses.items()}


@pytest.mark.parametrize("lead", ["", "Screen: a browser. Classification:"])
def test_label_probabilities_are_those_of_a_full_softmax(asked, lead):
    policy, examples = asked
    labels = ("yes", "no")
    leads = [lead if number % 2 else "" for number in range(len(examples))]
    found = LocalModel(policy, batch_size=8).label_probabilities(
        examples, labels=labels, leads=leads
    )
    for example, given, row in zip(examples, leads, found, strict=True):
        by_hand = score_by_hand(policy, example, given, labels)
        assert sum(row.values()) == pytest.approx(1)
        assert row == pytest.approx(by_hand, abs=1e-5)


@pytest.mark.parametrize("num_leads", [0, 1, 3])
def test_leads_are_as_many_as_examples(text, text_examples, num_leads):
    leads = ["a"] * num_leads
    with pytest.raises(ValueError, match="zip"):
        LocalModel(text, batch_size=1).label_probabilities(
            text_examples[:2], labels=("yes", "no"), leads=leads
        )


def test_a_lead_changes_the_shares_but_its_last_space_does_not(text, text_examples):
    engine = LocalModel(text)

    def ask(lead):
        [row] = engine.label_probabilities(text_examples[:1], labels=("yes", "no"), leads=[lead])
        return row["yes"]

    assert ask("Label: ") == ask("Label:")
    assert not math.isclose(ask("Label:"), ask(""), abs_tol=1e-6)


def test_the_penalty_of_one_row_is_that_of_the_library(text, text_examples):
    """The prompt counts, too; here there is no padding."""
    inputs = text.tokenizer(text.render_prompt(text_examples[0]), return_tensors="pt")
    with torch.no_grad():
        whole = text.model.generate(
            **inputs, max_new_tokens=6, do_sample=False, repetition_penalty=1.3
        )
    sampling = Sampling(max_new_tokens=6, repetition_penalty=1.3)
    [[found]] = LocalModel(text).generate(text_examples[:1], sampling=sampling)
    assert list(found.token_ids) == whole[0, inputs["input_ids"].shape[1] :].tolist()


@pytest.mark.parametrize("num_completions", [1, 2])
def test_padding_is_not_penalised(taught_text_folder, text_examples, num_completions):
    """Some models end with the token they pad with: it must stay as likely in a padded row."""
    text = load_policy(taught_text_folder)
    [end] = text.end_token_ids
    text.tokenizer.pad_token = text.tokenizer.decode([end])
    examples = [
        replace(example, prompt=(Message("user", "word " * 9 * number + "是不是单数?"),))
        for number, example in enumerate(text_examples)
    ]
    text.tokenizer.chat_template = "{% for m in messages %}{{ m['content'] }}{% endfor %}"
    sampling = Sampling(max_new_tokens=8, repetition_penalty=1.5)
    named = {"sampling": sampling, "num_completions": num_completions}
    if num_completions > 1:
        named["sampling"] = sampling.model_copy(update={"temperature": 1e-4})
    alone = LocalModel(text, batch_size=1).generate(examples, **named)
    assert any(c.finish_reason == "stop" for drawn in alone for c in drawn)
    assert LocalModel(text, batch_size=8).generate(examples, **named) == alone


def weigh_by_hand(policy, asked, labels):
    """Return the labels' shares from one pass for each beginning of a spelling."""
    blank = set(policy.tokenizer.encode(" "))
    paths = {}
    for label in labels:
        for spelling in list_spellings(label):
            ids = policy.tokenizer.encode(spelling)
            paths[tuple(ids[ids[0] in blank :])] = label

    def part(path, reached):
        behind = {one: own for one, own in paths.items() if one[: len(path)] == path}
        if len(set(behind.values())) == 1:
            return [(*behind.values(), reached)]
        ids = torch.tensor([[*asked, *path]])
        chances = policy.model(input_ids=ids).logits[0, -1].double().softmax(-1)
        going_on = {one[len(path)] for one in behind if len(one) > len(path)}
        found = [p for token in going_on for p in part((*path, token), reached * chances[token])]
        rest = reached * (1 - sum(chances[token] for token in going_on))
        return [*found, (paths[path], rest)] if path in paths else found

    parts = part((), 1.0)
    masses = {label: sum(float(m) for own, *_, m in parts if own == label) for label in labels}
    return {label: mass / sum(masses.values()) for label, mass in masses.items()}


@pytest.mark.parametrize(
    "labels",
    [("fault", "faulty"), tuple(str(number) for number in range(1, 11)), ("on-task", "off-task")],
)
@torch.no_grad()
def test_labels_that_begin_alike_have_the_shares_of_what_is_written(text, text_examples, labels):
    engine = LocalModel(text, batch_size=8)
    found = engine.label_probabilities(text_examples[:4], labels=labels)
    for example, shares in zip(text_examples, found, strict=False):
        asked = text.processor(text=text.render_prompt(example))["input_ids"]
        assert shares == pytest.approx(weigh_by_hand(text, asked, labels), abs=2e-3)


def test_labels_that_are_spelled_alike_are_refused(text, text_examples):
    with pytest.raises(ModelError, match=r"'yes' is spelled in the tokens of another.*case"):
        LocalModel(text).label_probabilities(text_examples[:1], labels=("yes", "Yes"))


LABELS = ["yes", "no"]
SAMPLING = Sampling(max_new_tokens=6)


class CountingEngine(LocalModel):
    """Notes the sizes of its batches."""

    def __init__(self, policy, **named):
        super().__init__(policy, **named)
        self.sizes = []

    def generate(self, examples, **named):
        self.sizes.append(len(examples))
        return super().generate(examples, **named)

    def label_probabilities(self, examples, **named):
        self.sizes.append(len(examples))
        return super().label_probabilities(examples, **named)


@pytest.fixture(scope="module")
def engine(vision_folder):
    return LocalModel(load_policy(vision_folder), batch_size=4)


def gather(*work):
    async def wait():
        return await asyncio.gather(*work)

    return run_on_shared_loop(wait())


def test_single_requests_get_what_a_batch_gets(engine, picture_examples):
    counting = CountingEngine(engine.policy, batch_size=4)
    responder = counting
    replies = gather(*(responder.reply(e, sampling=SAMPLING) for e in picture_examples[:6]))
    shares = gather(*(responder.label_shares(e, labels=LABELS) for e in picture_examples[:6]))
    drawn = engine.generate(picture_examples[:6], sampling=SAMPLING)
    assert [reply.text for reply in replies] == [row[0].text for row in drawn]
    for share, expected in zip(
        shares, engine.label_probabilities(picture_examples[:6], labels=LABELS), strict=True
    ):
        assert share.shares == pytest.approx(expected, abs=1e-5)
    assert counting.sizes == [4, 2, 4, 2]
    assert {reply.usage.completion_tokens for reply in replies} <= set(range(1, 7))


def test_what_fails_is_told_to_those_who_wait_and_the_next_is_answered(engine, picture_examples):
    responder = engine
    with pytest.raises(ModelError, match="spelled in the tokens of another"):
        run_on_shared_loop(responder.label_shares(picture_examples[0], labels=["yes", "Yes"]))
    assert run_on_shared_loop(responder.label_shares(picture_examples[0], labels=LABELS)).shares


def test_without_a_thread_nobody_waits_for_ever(engine, picture_examples):
    closed = LocalModel(engine.policy)
    closed._thread.shutdown()
    reply = closed.reply(picture_examples[0], sampling=SAMPLING)
    with pytest.raises(RuntimeError, match="after shutdown"):
        run_on_shared_loop(asyncio.wait_for(reply, 20))


def test_a_picture_that_changed_is_not_looked_at(engine, picture_examples, tmp_path):
    path = tmp_path / "a.png"
    path.write_bytes(picture_examples[0].pictures[0].path.read_bytes())
    example = make_example([Message("user", "?")], cluster="g", pictures=[read_picture(path)])
    path.write_bytes(picture_examples[1].pictures[0].path.read_bytes())
    with pytest.raises(DataError, match="changed"):
        run_on_shared_loop(engine.reply(example, sampling=SAMPLING))


def test_the_revision_is_that_of_the_weights(vision_folder):
    first, second = (load_policy(vision_folder) for _ in range(2))
    revisions = [LocalModel(policy, name="tiny").identity["revision"] for policy in (first, second)]
    assert revisions[0] == revisions[1]
    next(second.model.parameters()).data[0] += 1e-3
    changed = LocalModel(second, name="tiny").identity
    assert changed == {"model": "tiny", "revision": changed["revision"]}
    assert changed["revision"] != revisions[0]
    third = load_policy(vision_folder)
    text = third.model.config.text_config
    text.hidden_act = "gelu" if text.hidden_act != "gelu" else "silu"
    other = LocalModel(third, name="tiny").identity["revision"]
    assert other != revisions[0]
    assert LocalModel(second, name="t", revision="r1").identity["revision"] == "r1"


@pytest.mark.parametrize("num_timed", [0, 3, 99])
def test_the_first_answers_are_timed_alone(text_folder, text_examples, monkeypatch, num_timed):
    clock, asked = [0.0], []

    def generate(engine, examples, *, sampling):
        asked.append((engine.batch_size, *(example.id for example in examples)))
        clock[0] += 0.5 * len(asked)

    monkeypatch.setattr(LocalModel, "generate", generate)
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
