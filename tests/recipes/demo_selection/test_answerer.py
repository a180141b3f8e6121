"""The answerer of demo_selection: what it is asked, and what is recorded of it."""

import math
import random
import signal
import subprocess
import sys
from collections import Counter
from dataclasses import replace

import pytest
import recording_job
import torch
from demonstrations import QUERIES, TRAIN, RepeatLast, make_asked, make_item, make_selector
from recording_job import SETTINGS, record
from tables import read_tables

from groupwise.core import (
    DataError,
    Message,
    RewardError,
    RunError,
    TrainingError,
    make_example,
    read_json,
)
from groupwise.inference.model import Reply, RequestError, Sampling
from groupwise.inference.server import ServerModel
from groupwise.inference.settings import ServerSettings, StreamSettings
from groupwise.judges import ReplyCache
from groupwise.models.policy import load_policy
from groupwise_drawn.dialects import COLORS, read_dialects, write_dialects
from groupwise_recipes.demo_selection import answerer as teaching
from groupwise_recipes.demo_selection.answerer import (
    ANSWERER_FORM,
    Lessons,
    Teaching,
    teach_answerer,
)
from groupwise_recipes.demo_selection.asking import Answerer, Result, cut_answer
from groupwise_recipes.demo_selection.candidate_audit import audit_candidates
from groupwise_recipes.demo_selection.candidate_groups import make_groups
from groupwise_recipes.demo_selection.choosing import choose_by_baseline, choose_by_selector
from groupwise_recipes.demo_selection.conditions import SAME_IN_EVALUATION, find_differences
from groupwise_recipes.demo_selection.episodes import Turn, draw_episode
from groupwise_recipes.demo_selection.items import list_contents, make_dialect_example
from groupwise_recipes.demo_selection.recorded_groups import (
    MAX_REWARDS,
    RecordedGroups,
    combine_rewards,
    keep_best,
)
from groupwise_recipes.demo_selection.recording import (
    RecordingSettings,
    draw_lists,
    record_candidates,
)
from groupwise_recipes.demo_selection.vqa import PUBLISHED_VQA, FewShotForm

TABLES = read_tables(__file__)
TINY = Teaching(num_steps=2, num_aligning_steps=2, batch_size=2, num_scenes=24, min_looked_up=0)


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


def test_pictures_are_as_loud_as_words_and_only_words_count_as_looked_up(
    policy, lessons, monkeypatch
):
    words = policy.tokenizer(list(COLORS))["input_ids"]
    known = policy.model.get_input_embeddings().weight.detach()[[ids[0] for ids in words]]
    loudness = lessons.see(range(8)).norm(dim=-1).mean() / known.norm(dim=-1).mean()
    assert 0.2 < float(loudness) < 5
    end = lessons.tokenizer.eos_token_id
    wanted = torch.tensor([5, end, 6, end])
    said = torch.tensor([5, end, 7, end])
    logits = torch.nn.functional.one_hot(said, end + 8).float()
    monkeypatch.setattr(lessons, "answer", lambda *_: (logits, wanted))
    assert lessons.measure_looked_up(torch.zeros(1), []) == 0.5


def test_halfway_an_attempt_that_does_not_look_words_up_ends(policy, monkeypatch):
    settings = replace(TINY, num_steps=6, min_looked_up=0.5, max_shots=3)
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
    assert scenes[0] == {c: [n for n, one in enumerate(rest) if one == c] for c in rest}
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
    assert (rates[:2], rates[30:60]) == (pytest.approx([1 / 30, 2 / 30]), [1.0] * 30)
    assert (rates[80], rates[-1]) == (pytest.approx(0.5), pytest.approx(0.05))


def test_an_answerer_that_does_not_look_words_up_is_not_passed_on(tmp_path):
    settings = replace(TINY, min_looked_up=1.0, max_attempts=2)
    with pytest.raises(TrainingError, match="did not learn to look words up; got 2 attempts"):
        teach_answerer(tmp_path, settings, seed=0)


SHOWN = [make_item(number) for number in range(8)]
ASKING = [make_item(number, split="test") for number in range(3)]
A, B, C = (one.id for one in SHOWN[:3])


def make_answerer(backend=None, *, train=SHOWN, **more):
    return Answerer(backend or RepeatLast(), train=train, **{"identity": "weights", **more})


def test_each_list_has_its_own_result_and_its_order_counts():
    backend = RepeatLast()
    asked = [(ASKING[0], [(B, A), (A, B), ()]), (ASKING[1], [(A, B)])]
    first, second = make_answerer(backend).ask(asked)
    assert first == {
        (B, A): Result("lum", 1.0),
        (A, B): Result("dak", 0.0),
        (): Result("nothing", 0.0),
    }
    assert list(first) == [(B, A), (A, B), ()]
    assert second == {(A, B): Result("dak", 1.0)}
    assert backend.prompts[0] == (
        "Question:What is train-1? Short answer:dak\n"
        "Question:What is train-0? Short answer:lum\n"
        "Question:What is test-0? Short answer:"
    )


def test_what_fails_has_no_result_and_is_counted_and_asked_again(tmp_path):
    cache = ReplyCache(tmp_path / "answers.db")
    answerer = make_answerer(RepeatLast(failing=["test-1"]), cache=cache)
    asked = [(query, [(A,)]) for query in ASKING]
    first, failed, last = answerer.ask(asked)
    assert failed == {(A,): Result(None, None)}
    assert first == {(A,): Result("lum", 1.0)}
    assert last == {(A,): Result("lum", 0.0)}
    assert answerer.failures == {"timeout": 1}
    again = make_answerer(cache=cache)
    assert [one[A,].answer for one in again.ask(asked)] == ["lum"] * 3
    assert again.num_asked == 1


def test_a_list_is_asked_once_unless_anything_about_it_differs(tmp_path):
    cache = ReplyCache(tmp_path / "answers.db")
    asked = [(ASKING[0], [(A, B), (A, B), (B, C)])]
    first = make_answerer(cache=cache)
    (found,) = first.ask(asked)
    assert first.num_asked == 2
    same = make_answerer(cache=cache)
    assert list(same.ask(asked)) == [found]
    assert same.num_asked == 0
    for more in (
        {"form": FewShotForm("{question} Short answer:")},
        {"sampling": Sampling(max_new_tokens=3)},
        {"stream": StreamSettings(max_pixels=1000)},
        {"identity": "other weights"},
    ):
        other = make_answerer(cache=cache, **more)
        list(other.ask(asked))
        assert other.num_asked == 2, more
    (turned,) = first.ask([(ASKING[0], [(B, A)])])
    assert turned[B, A].answer == "lum", "the order is part of it"


@pytest.mark.parametrize(
    ("said", "form", "answer"),
    [
        (" net\n", PUBLISHED_VQA, "net"),
        ("netQuestion:What is it? Short", PUBLISHED_VQA, "net"),
        ("lumQuestion:What?", PUBLISHED_VQA, "lum"),
        ("What is it? A net", PUBLISHED_VQA, "What is it? A net"),
        ("\nfish net\nSay it", FewShotForm("{question}{pictures}", between="\n"), "fish net"),
        ("net; Q: What", FewShotForm("Q: {question} A:", between="; "), "net"),
        ("Question:What?", PUBLISHED_VQA, ""),
    ],
)
def test_an_answer_ends_where_another_example_begins_and_is_scored_so(said, form, answer):
    assert cut_answer(said, form) == answer

    class Says(RepeatLast):
        def stream(self, *asked, **named):
            for number, outcome in super().stream(*asked, **named):
                yield number, replace(outcome, text=said)

    (found,) = make_answerer(Says(), form=form).ask([(ASKING[0], [(A,)])])
    assert found[A,] == Result(answer, float(answer == "lum"))


def test_what_cannot_be_asked_or_scored_is_named():
    with pytest.raises(DataError, match="unknown is no demonstration; got a list of query"):
        list(make_answerer().ask([(ASKING[0], [(A, "unknown")])]))
    query = make_example(ASKING[0].prompt, cluster="", fields={"question": "What?"})
    with pytest.raises(DataError, match="cannot be scored: no field answers"):
        list(make_answerer().ask([(query, [(A,)])]))
    with pytest.raises(DataError, match="needs one picture; got 0"):
        list_contents([ASKING[0].with_pictures(())])
    with pytest.raises(DataError, match="has no field question"):
        list_contents([make_example(ASKING[0].prompt, cluster="")])


def test_conditions_differ_where_answers_may():
    ours = make_answerer().describe(sampler="pools").describe()
    assert not find_differences(ours, ours, names=SAME_IN_EVALUATION)
    pooled = {"sampler": "pools"}
    for name, changes, conditions in (
        ("sampler", {}, {"sampler": "other"}),
        ("prompt", {"form": FewShotForm("{question}")}, pooled),
        ("decoding", {"sampling": Sampling(max_new_tokens=3)}, pooled),
        ("answerer", {"identity": "b", "train": []}, pooled),
        ("correct", {}, {**pooled, "correct_above": 0.5}),
    ):
        theirs = make_answerer(**changes).describe(**conditions).describe()
        assert list(find_differences(ours, theirs, names=SAME_IN_EVALUATION)) == [name]


class Replies(ServerModel):
    """A server that refuses one question and repeats the pictures of the others."""

    def __init__(self, refused):
        super().__init__(ServerSettings(url="http://127.0.0.1:1/v1", model="m"))
        self.refused = refused

    async def reply(self, example, *, sampling):
        if example.prompt[-1].text.splitlines()[-1].startswith(f"Question:{self.refused}"):
            raise RequestError("refused", "too many pictures")
        return Reply(",".join(picture.path.stem for picture in example.pictures))


def test_a_server_is_asked_as_a_model_and_drawn_items_as_published_ones_are(tmp_path):
    items = read_dialects(write_dialects(tmp_path, seed=0, sizes={"train": 3, "test": 3}))
    train, queries = ([make_dialect_example(i) for i in part] for part in (items[:3], items[3:]))
    a, b, c = (one.id for one in train)
    answerer = make_answerer(Replies(items[4].question), train=train, identity="m 1")
    found = list(answerer.ask([(query, [(a,), (c, b)]) for query in queries]))
    assert [one[c, b].answer for one in found] == ["2,1,0", None, "2,1,2"]
    assert [one[a,].answer for one in found] == ["0,0", None, "0,2"]
    assert answerer.failures == {"refused": 2}
    query, item = queries[0], items[3]
    ((result,),) = (one.values() for one in make_answerer(train=train).ask([(query, [(a,)])]))
    assert result.answer == items[0].answer
    assert answerer.write_prompt(query, (a,)).pictures == (items[0].picture, item.picture)
    assert list_contents([query]) == [(query.id, item.picture, item.question)]
    assert query.cluster == query.fields["question_id"] == "test-0"


ASKED = make_asked()


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return record(tmp_path_factory.mktemp("whole") / "candidates.jsonl")


def test_every_query_has_the_lists_of_the_settings():
    drawn = draw()
    num_kept = sum(map(len, drawn.candidates.values()))
    assert num_kept + drawn.drops.total == 14 * len(QUERIES)
    assert set(drawn.drops.counts) <= {"repeated list"}
    for query in QUERIES:
        lists = drawn.candidates[query.id]
        assert len({one.ids for one in lists}) == len(lists)
        methods = Counter((one.method, one.temperature) for one in lists)
        assert methods["beam", None] == 5
        assert methods.total() <= 14
        assert all((c.log_prob is None) == (c.method in ("retrieval", "random")) for c in lists)
    temperatures = [one.temperature for lists in drawn.candidates.values() for one in lists]
    assert set(temperatures) == {None, 1.0, 1.3}
    firsts = [lists[0].ids for lists in drawn.candidates.values()]
    assert firsts == choose_by_selector(make_selector(), ASKED, num_shots=3)


def test_the_nearest_are_those_of_the_baselines():
    drawn = draw(num_shots=2)
    for kind in ("text", "picture", "both"):
        nearest = choose_by_baseline(f"nearest_{kind}", ASKED, num_shots=2)
        for query, one in zip(QUERIES, nearest, strict=True):
            assert one in [candidate.ids for candidate in drawn.candidates[query.id]]


def draw(settings=SETTINGS, *, asked=ASKED, seed=5, **changes):
    return draw_lists(make_selector(), asked, settings.model_copy(update=changes), seed=seed)


def test_random_lists_differ_from_query_to_query():
    drawn = draw(num_beams=1, num_shots=4).candidates
    places = [tuple(map(ASKED.name_pool(q.id).index, drawn[q.id][-1].ids)) for q in QUERIES]
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
    drawn, features = draw().candidates, ASKED.features
    parts = {name: getattr(features, name)[3:4] for name in ("ids", "pictures", "texts")}
    one = replace(ASKED, queries=ASKED.queries[3:4], features=replace(features, **parts))
    name = QUERIES[3].id
    lists = [c.ids for c in drawn[name]]
    assert [c.ids for c in draw(asked=one).candidates[name]] == lists
    assert [c.ids for c in draw(seed=6).candidates[name]] != lists


def test_what_is_recorded_can_be_trained_on(whole):
    assert [query.query_id for query in whole.queries] == [query.id for query in QUERIES]
    for query, item in zip(whole.queries, QUERIES, strict=True):
        assert (query.question_id, query.image_id) == tuple(
            item.fields[name] for name in ("question_id", "image_id")
        )
        assert query.pool == ASKED.name_pool(item.id)
        for one in query.candidates:
            last = next(shown for shown in TRAIN if shown.id == one.ids[-1])
            assert (one.answer, one.accuracy) == (last.label, float(last.label == item.label))
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
    assert record(path, answerer=make_answerer(backend, train=TRAIN)) == whole
    done = sum(len(query.candidates) for query in whole.queries[:3])
    assert len(backend.prompts) == sum(len(q.candidates) for q in whole.queries) - done


def test_lists_that_were_drawn_twice_are_counted_and_failed_evaluations_are_none(tmp_path):
    drawn = draw(RecordingSettings(num_shots=1))
    answerer = make_answerer(train=TRAIN)
    recording = record_candidates(tmp_path / "anchors.jsonl", answerer, ASKED, drawn)
    counted = read_json(tmp_path / "anchors-drops.json", dict)
    num_kept = sum(len(query.candidates) for query in recording.queries)
    assert counted["counts"] == {"repeated list": 14 * len(QUERIES) - num_kept}
    assert counted["total"] > 0
    answerer = make_answerer(RepeatLast(failing=["test-1"]), train=TRAIN)
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
    asked = make_asked(seed=1)
    with pytest.raises(RunError, match="other conditions; got another sampler"):
        record_candidates(path, make_answerer(train=TRAIN), asked, draw(asked=asked))


def make(lists, rewards, present=None, num_items=4):
    lists = torch.tensor(lists)
    return RecordedGroups(
        torch.ones(len(lists), 3),
        torch.ones(len(lists), num_items, 3),
        lists,
        torch.tensor(rewards),
        torch.ones(lists.shape[:2], dtype=torch.bool) if present is None else torch.tensor(present),
        max_reward=2.0,
    )


@pytest.mark.parametrize(("mode", "expected"), TABLES["reward_modes"])
def test_reward_modes(mode, expected):
    hard, soft = torch.tensor([0.0, 1.0, 1.0, 0.0]), torch.tensor([0.0, 0.3, 1.0, 0.3])
    assert combine_rewards(hard, soft, mode=mode).tolist() == pytest.approx(expected)
    assert MAX_REWARDS[mode] == max(expected)
    with pytest.raises(RewardError, match="got hard_and_soft; expected one of hard_plus_soft, sep"):
        combine_rewards(hard, soft, mode="hard_and_soft")


def test_what_is_absent_does_not_matter_and_the_first_of_the_best_are_kept():
    groups = make([[[2, 1], [-1, -1]]], [[1.0, math.inf]], [[True, False]])
    assert groups.lists.tolist() == [[[2, 1], [0, 1]]]
    assert groups.rewards[0, 0] == 1
    assert groups.rewards[0, 1].isnan()
    assert len(groups) == 1
    rewards = torch.tensor([[0.0, 2.0, math.nan, 1.3, 1.3], [math.nan, math.nan, math.nan, 1, 0]])
    kept = ~keep_best(rewards, 2).isnan()
    assert kept.tolist() == [[False, True, False, True, False], [False] * 3 + [True, True]]
    assert keep_best(rewards, 9).nan_to_num(-1).equal(rewards.nan_to_num(-1))


@pytest.mark.parametrize(("given", "match"), TABLES["what_does_not_fit_is_refused"])
def test_what_does_not_fit_is_refused(given, match):
    with pytest.raises(DataError, match=match):
        make(*given)
