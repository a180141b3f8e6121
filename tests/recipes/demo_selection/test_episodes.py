"""Episodes: what is asked for was shown, and what is not asked for cannot be guessed."""

import random

from hypothesis import given
from hypothesis import strategies as st

from groupwise_drawn.dialects import COLORS
from groupwise_recipes.demo_selection.episodes import Turn, draw_episode

SCENES = {color: [2 * number, 2 * number + 1] for number, color in enumerate(sorted(COLORS))}
COLOR_OF = {place: color for color, places in SCENES.items() for place in places}


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


def name_cell(turn: Turn) -> tuple[str, str]:
    return turn.question.split()[-1], COLOR_OF[turn.place]


def draw_many(num_shots: int, *, number: int = 600) -> list[list[Turn]]:
    rng = random.Random(0)
    return [draw_episode(SCENES, num_shots=num_shots, rng=rng) for _ in range(number)]


def test_in_three_of_ten_episodes_the_last_turn_revises_an_earlier_one():
    num_revised = 0
    for turns in draw_many(3):
        shown = [turn for turn in turns if not turn.is_taught]
        cells = [name_cell(turn) for turn in shown]
        if len(set(cells)) < 3:
            num_revised += 1
            assert len(set(cells)) == 2
            assert cells.count(cells[-1]) == 2
            former = shown[cells.index(cells[-1])]
            assert former.word != shown[-1].word
    assert 150 < num_revised < 210
    assert all(len(turns) == 2 for turns in draw_many(1, number=50))


def test_the_order_in_which_words_are_asked_for_says_nothing():
    places = [0, 0, 0]
    num_sorted = 0
    for turns in draw_many(3):
        shown, asked = turns[:3], list(map(name_cell, turns[3:]))
        num_sorted += asked == sorted(asked)
        if len(asked) == 3:
            places[asked.index(name_cell(shown[0]))] += 1
    assert num_sorted < 300
    assert min(places) > 100


def test_shown_turns_often_share_a_dialect_or_a_colour():
    pairs = [tuple(map(name_cell, turns[:2])) for turns in draw_many(2)]
    different = [(one, other) for one, other in pairs if one != other]
    for part in (0, 1):
        share = sum(one[part] == other[part] for one, other in different) / len(different)
        assert 0.3 < share < 0.6


def test_every_scene_of_a_colour_is_shown_and_asked_about():
    turns = [turn for episode in draw_many(3) for turn in episode]
    for is_taught in (False, True):
        assert {turn.place for turn in turns if turn.is_taught == is_taught} == set(COLOR_OF)
