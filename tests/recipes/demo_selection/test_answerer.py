"""The tiny answerer: it is asked as it is taught, and taught what it should be."""

import random
from dataclasses import replace

import pytest
import torch

from groupwise.core import Message, TrainingError, make_example
from groupwise.models import load_policy
from groupwise_drawn.dialects import COLORS
from groupwise_recipes.demo_selection import answerer as teaching
from groupwise_recipes.demo_selection.answerer import (
    ANSWERER_FORM,
    AnswererSettings,
    Lessons,
    teach_answerer,
)
from groupwise_recipes.demo_selection.episodes import Turn, draw_episode

TINY = AnswererSettings(
    num_steps=2, num_aligning_steps=2, batch_size=2, num_scenes=24, min_looked_up=0
)


@pytest.fixture(scope="module")
def answerer(tmp_path_factory):
    return teach_answerer(tmp_path_factory.mktemp("answerer"), TINY, seed=0)


@pytest.fixture(scope="module")
def policy(answerer):
    return load_policy(answerer)


@pytest.fixture(scope="module")
def lessons(policy):
    return Lessons(policy, TINY, random.Random(0))


def test_it_is_asked_as_it_is_taught(policy, lessons, picture_examples):
    def write(question, word):
        asked = make_example(
            [Message("user", question)],
            cluster="x",
            pictures=picture_examples[0].pictures,
            fields={"question": question},
        )
        return replace(asked, label=word)

    turns = [Turn("Reply in Kelo", 0, "lum", False), Turn("Name it in Bodo", 0, "zim", False)]
    asked = Turn("Say it in Thal", 0, "dak", True)
    shown = [write(turn.question, turn.word) for turn in turns]
    example = make_example(ANSWERER_FORM.write(write(asked.question, None), shown), cluster="query")
    prompt = policy.tokenizer.encode(policy.render_prompt(example))
    ids, wanted = lessons.write([*turns, asked])
    assert prompt == ids[: len(prompt)].tolist()
    assert policy.tokenizer.decode(wanted[wanted != -100]) == "dak<|im_end|>"
    assert wanted[len(prompt) - 1] != -100, "the answer is taught right behind the prompt"
    assert (wanted[: len(prompt) - 1] == -100).all()


def test_the_loss_is_that_of_the_model_itself(policy, lessons):
    pixels, grids = lessons.process(range(TINY.num_scenes))
    places = {color: list(range(TINY.num_scenes)) for color in COLORS}
    episodes = [draw_episode(places, num_shots=num, rng=random.Random(num)) for num in (3, 2)]
    words, ends, num_words = 0.0, 0.0, 0
    with torch.inference_mode():
        for episode in episodes:
            ids, wanted = lessons.write(episode)
            shown = [turn.place for turn in episode]
            logits = policy.model(
                input_ids=ids[None],
                pixel_values=pixels[shown].flatten(0, 1),
                image_grid_thw=grids[shown],
                mm_token_type_ids=(ids == lessons.picture_id).long()[None],
            ).logits[0]
            log_probs = logits.log_softmax(-1)[wanted != -100]
            costs = -log_probs.gather(1, wanted[wanted != -100, None])[:, 0]
            words, ends = words + costs[::2].sum(), ends + costs[1::2].sum()
            num_words += len(costs) // 2
        fast = lessons.find_loss(lessons.see(range(TINY.num_scenes)), episodes)
    expected = (words + 0.05 * ends) / (1.05 * num_words)
    assert fast.item() == pytest.approx(float(expected), abs=1e-5)


def test_pictures_are_as_loud_as_words_once_they_are_aligned(policy, lessons):
    words = policy.tokenizer(list(COLORS))["input_ids"]
    known = policy.model.get_input_embeddings().weight.detach()[[ids[0] for ids in words]]
    loudness = lessons.see(range(8)).norm(dim=-1).mean() / known.norm(dim=-1).mean()
    assert 0.2 < float(loudness) < 5


def test_only_words_count_as_looked_up(lessons, monkeypatch):
    end = lessons.tokenizer.eos_token_id
    wanted = torch.tensor([5, end, 6, end])
    said = torch.tensor([5, end, 7, end])
    logits = torch.nn.functional.one_hot(said, end + 8).float()
    monkeypatch.setattr(lessons, "answer", lambda *_: (logits, wanted))
    assert lessons.measure_looked_up(torch.zeros(1), []) == 0.5


def test_halfway_an_attempt_that_does_not_look_words_up_ends(policy, monkeypatch):
    settings = TINY.model_copy(update={"num_steps": 6, "min_looked_up": 0.5, "max_shots": 3})
    lessons = Lessons(policy, settings, random.Random(0))
    steps, asked, scenes = [], [], []

    def draw(places, *, num_shots, rng):
        scenes.append(places)
        return [num_shots]

    def measure(tokens, episodes):
        asked.extend(episodes)
        return 0.4

    monkeypatch.setattr(teaching, "draw_episode", draw)
    monkeypatch.setattr(teaching, "_take_step", lambda *_: steps.append(1))
    monkeypatch.setattr(lessons, "find_loss", lambda *_: None)
    monkeypatch.setattr(lessons, "measure_looked_up", measure)
    assert not lessons.teach()
    assert (len(steps), asked) == (3, [[3]] * TINY.batch_size)
    rest = lessons.colors[16:]
    assert scenes[0] == {
        color: [place for place, one in enumerate(rest) if one == color] for color in rest
    }
    monkeypatch.setattr(lessons, "measure_looked_up", lambda *_: 0.5)
    assert lessons.teach()
    assert len(steps) == 3 + 6


def test_the_rate_rises_stays_and_falls(lessons):
    weight = torch.nn.Parameter(torch.zeros(1))
    optimizer, schedule = lessons.plan_training([weight], 100, rate=2.0)
    rates = []
    for _ in range(100):
        rates.append(optimizer.param_groups[0]["lr"] / 2)
        optimizer.step()
        schedule.step()
    assert rates[:2] == pytest.approx([1 / 30, 2 / 30])
    assert rates[30:60] == [1.0] * 30
    assert rates[80] == pytest.approx(0.5)
    assert rates[-1] == pytest.approx(0.05)


def test_an_answerer_that_does_not_look_words_up_is_not_passed_on(tmp_path):
    settings = TINY.model_copy(update={"min_looked_up": 1.0, "max_attempts": 2})
    with pytest.raises(TrainingError, match="did not learn to look words up; got 2 attempts"):
        teach_answerer(tmp_path, settings, seed=0)
