"""Recorded lists: what they are, that a stop changes nothing, and what is refused."""

import signal
import subprocess
import sys
from collections import Counter
from dataclasses import replace

import pytest
import recording_job
import torch
from demonstrations import QUERIES, TRAIN, RepeatLast, make_asked, make_selector
from recording_job import SETTINGS, record

from groupwise.core import RunError, read_json
from groupwise_recipes.demo_selection.asking import Answerer
from groupwise_recipes.demo_selection.candidate_audit import audit_candidates
from groupwise_recipes.demo_selection.candidate_groups import make_groups
from groupwise_recipes.demo_selection.choosing import choose_by_baseline, choose_by_selector
from groupwise_recipes.demo_selection.recording import (
    RecordingSettings,
    draw_lists,
    record_candidates,
)

ASKED = make_asked()


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return record(tmp_path_factory.mktemp("whole") / "candidates.jsonl")


def test_every_query_has_the_lists_of_the_settings():
    drawn = draw_lists(make_selector(), ASKED, SETTINGS, seed=5)
    num_kept = sum(map(len, drawn.candidates.values()))
    assert num_kept + drawn.drops.total == 14 * len(QUERIES)
    assert set(drawn.drops.counts) <= {"repeated list"}
    for query in QUERIES:
        lists = drawn.candidates[query.id]
        assert len({one.ids for one in lists}) == len(lists)
        methods = Counter((one.method, one.temperature) for one in lists)
        assert methods["beam", None] == 5
        assert methods.total() <= 14
        assert all(
            (one.log_prob is None) == (one.method in ("retrieval", "random")) for one in lists
        )
    temperatures = [one.temperature for lists in drawn.candidates.values() for one in lists]
    assert set(temperatures) == {None, 1.0, 1.3}
    firsts = [lists[0].ids for lists in drawn.candidates.values()]
    assert firsts == choose_by_selector(make_selector(), ASKED, num_shots=3)


def test_the_nearest_are_those_of_the_baselines():
    settings = RecordingSettings(num_beams=1, num_samples=0, num_random=0)
    drawn = draw_lists(make_selector(), ASKED, settings, seed=5)
    for kind in ("text", "picture", "both"):
        nearest = choose_by_baseline(f"nearest_{kind}", ASKED, num_shots=2)
        for query, one in zip(QUERIES, nearest, strict=True):
            assert one in [candidate.ids for candidate in drawn.candidates[query.id]]
    without = draw_lists(
        make_selector(), ASKED, settings.model_copy(update={"has_nearest": False}), seed=5
    )
    assert {len(lists) for lists in without.candidates.values()} == {1}


def draw(**settings):
    settings = RecordingSettings(num_beams=1, has_nearest=False, **settings)
    return draw_lists(make_selector(), ASKED, settings, seed=5).candidates


def test_samples_follow_the_temperature():
    cold, hot = (
        draw(temperatures=(temperature,), num_samples=40, num_random=0)
        for temperature in (0.01, 10.0)
    )
    assert all(len(cold[query.id]) < len(hot[query.id]) for query in QUERIES)


def test_random_lists_differ_from_query_to_query():
    drawn = draw(num_shots=4, num_samples=0, num_random=1)
    places = [
        tuple(map(ASKED.name_pool(query.id).index, drawn[query.id][-1].ids)) for query in QUERIES
    ]
    assert [drawn[query.id][-1].method for query in QUERIES] == ["random"] * len(QUERIES)
    assert len(set(places)) > 1


def test_log_probabilities_are_the_selectors_own():
    selector = make_selector()
    drawn = draw_lists(selector.train(), ASKED, SETTINGS, seed=5)
    assert selector.training, "the selector that is given is left as it is"
    selector.eval()
    pools = ASKED.train.joined[ASKED.members]
    for row, query in enumerate(QUERIES):
        known = [one for one in drawn.candidates[query.id] if one.log_prob is not None]
        positions = [[ASKED.name_pool(query.id).index(id_) for id_ in one.ids] for one in known]
        own = selector.log_probs(
            ASKED.features.joined[row : row + 1], pools[row : row + 1], torch.tensor([positions])
        )
        assert [one.log_prob for one in known] == pytest.approx(own[0].tolist(), abs=1e-5)


def test_lists_do_not_depend_on_the_other_queries():
    drawn = draw_lists(make_selector(), ASKED, SETTINGS, seed=5).candidates
    features = ASKED.features
    one = replace(
        ASKED,
        queries=ASKED.queries[3:4],
        features=replace(
            features,
            ids=features.ids[3:4],
            pictures=features.pictures[3:4],
            texts=features.texts[3:4],
        ),
    )
    alone = draw_lists(make_selector(), one, SETTINGS, seed=5).candidates
    name = QUERIES[3].id
    assert [c.ids for c in alone[name]] == [c.ids for c in drawn[name]]
    others = draw_lists(make_selector(), ASKED, SETTINGS, seed=6).candidates
    assert [c.ids for c in others[name]] != [c.ids for c in drawn[name]]


def test_what_is_recorded_can_be_trained_on(whole):
    assert [query.query_id for query in whole.queries] == [query.id for query in QUERIES]
    for query, item in zip(whole.queries, QUERIES, strict=True):
        assert (query.question_id, query.image_id) == tuple(
            item.fields[name] for name in ("question_id", "image_id")
        )
        assert query.pool == ASKED.name_pool(item.id)
        for one in query.candidates:
            last = next(shown for shown in TRAIN if shown.id == one.ids[-1])
            assert one.answer == last.label
            assert one.accuracy == float(last.label == item.label)
            assert (one.correct, one.scored_by) == (one.accuracy > 0, "VqaAccuracy")
    assert whole.conditions.sampler == ASKED.pools.digest
    audit = audit_candidates(whole, mode="soft_only")
    assert not [one for one in audit.findings if "accuracy" in one.message]
    groups = make_groups(whole, queries=ASKED.features, train=ASKED.train, mode="hard_plus_soft")
    assert groups.lists.shape[-1] == 3
    assert 0 < groups.rewards[groups.present].mean() < 2


def test_killed_in_the_middle_the_file_is_that_of_a_whole_run(whole, tmp_path):
    path = tmp_path / "candidates.jsonl"
    command = [sys.executable, recording_job.__file__, str(path), "3"]
    killed = subprocess.run(command, capture_output=True, timeout=120, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    backend = RepeatLast()
    answerer = Answerer(backend, identity="weights", train=TRAIN)
    assert record(path, answerer=answerer) == whole
    done = sum(len(query.candidates) for query in whole.queries[:3])
    assert len(backend.prompts) == sum(len(q.candidates) for q in whole.queries) - done


def test_lists_that_were_drawn_twice_are_counted(tmp_path):
    settings = RecordingSettings(num_shots=1, num_samples=9)
    drawn = draw_lists(make_selector(), ASKED, settings, seed=5)
    answerer = Answerer(RepeatLast(), identity="weights", train=TRAIN)
    recording = record_candidates(tmp_path / "anchors.jsonl", answerer, ASKED, drawn)
    counted = read_json(tmp_path / "anchors-drops.json", dict)
    num_kept = sum(len(query.candidates) for query in recording.queries)
    assert counted["counts"] == {"repeated list": 28 * len(QUERIES) - num_kept}
    assert counted["total"] > 0


def test_a_failed_evaluation_is_recorded_as_none(tmp_path):
    answerer = Answerer(RepeatLast(failing=["test-1"]), identity="weights", train=TRAIN)
    recording = record(tmp_path / "candidates.jsonl", answerer=answerer)
    failed = recording.queries[1].candidates
    assert {(one.answer, one.accuracy, one.correct, one.scored_by) for one in failed} == {
        (None, None, None, None)
    }
    assert answerer.failures == {"timeout": len(failed)}


def test_a_recording_is_not_continued_with_other_lists(tmp_path):
    path = tmp_path / "candidates.jsonl"
    record(path)
    with pytest.raises(RunError, match="begun with other lists; got others of query"):
        record(path, seed=6)
    answerer = Answerer(RepeatLast(), identity="weights", train=TRAIN)
    asked = make_asked(seed=1)
    drawn = draw_lists(make_selector(), asked, SETTINGS, seed=5)
    with pytest.raises(RunError, match="other conditions; got another sampler"):
        record_candidates(path, answerer, asked, drawn)
