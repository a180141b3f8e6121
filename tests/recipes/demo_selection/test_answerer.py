"""The tiny answerer: what its episodes ask for, and that it is asked as it is taught."""

import random
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from groupwise.core import Message, TrainingError, make_example
from groupwise.models import load_policy
from groupwise_drawn.dialects import COLORS
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


@given(st.sets(st.sampled_from(list(COLORS)), min_size=1), st.integers(1, 6), st.integers(0, 99))
def test_what_is_asked_for_was_shown_and_the_last_word_counts(colors, num_shots, seed):
    scenes = {color: [2 * number, 2 * number + 1] for number, color in enumerate(sorted(colors))}
    turns = draw_episode(scenes, num_shots=num_shots, rng=random.Random(seed))
    shown: dict[tuple[str, str], str] = {}
    asked = [turn for turn in turns if turn.is_taught]
    assert [turn.is_taught for turn in turns] == [False] * num_shots + [True] * len(asked)
    for turn in turns:
        cell = turn.question.split()[-1], sorted(colors)[turn.place // 2]
        if turn.is_taught:
            assert turn.word == shown.pop(cell)
        else:
            assert turn.word != shown.get(cell)
            shown[cell] = turn.word
    assert not shown


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
    episode = draw_episode(places, num_shots=3, rng=random.Random(1))
    ids, wanted = lessons.write(episode)
    shown = [turn.place for turn in episode]
    with torch.inference_mode():
        logits = policy.model(
            input_ids=ids[None],
            pixel_values=pixels[shown].flatten(0, 1),
            image_grid_thw=grids[shown],
            mm_token_type_ids=(ids == lessons.picture_id).long()[None],
        ).logits[0]
        fast = lessons.find_loss(lessons.see(range(TINY.num_scenes)), [episode])
    log_probs = logits.log_softmax(-1)[wanted != -100]
    costs = -log_probs.gather(1, wanted[wanted != -100, None])[:, 0]
    words, ends = costs[::2].sum(), costs[1::2].sum()
    expected = (words + 0.05 * ends) / (1.05 * len(costs) / 2)
    assert fast.item() == pytest.approx(expected.item(), abs=1e-5)


def test_an_answerer_that_does_not_look_words_up_is_not_passed_on(tmp_path):
    settings = TINY.model_copy(update={"min_looked_up": 1.0, "max_attempts": 2})
    with pytest.raises(TrainingError, match="did not learn to look words up; got 2 attempts"):
        teach_answerer(tmp_path, settings, seed=0)
