from dataclasses import replace
from typing import ClassVar

import pytest
from demonstrations import RepeatLast, make_item

from groupwise.core import DataError, make_example
from groupwise.data import PUBLISHED_VQA, FewShotForm
from groupwise.inference import Reply, RequestError, Sampling, ServerBackend, StreamSettings
from groupwise.judges import ReplyCache
from groupwise_drawn.dialects import read_dialects, write_dialects
from groupwise_recipes.demo_selection.asking import Answerer, Result, cut_answer
from groupwise_recipes.demo_selection.conditions import SAME_IN_EVALUATION, find_differences
from groupwise_recipes.demo_selection.items import list_contents, make_dialect_example

TRAIN = [make_item(number) for number in range(8)]
QUERIES = [make_item(number, split="test") for number in range(3)]
A, B, C = (one.id for one in TRAIN[:3])


def make_answerer(backend=None, **more):
    return Answerer(backend or RepeatLast(), identity="weights", train=TRAIN, **more)


def test_each_list_has_its_own_result_and_its_order_counts():
    backend = RepeatLast()
    asked = [(QUERIES[0], [(B, A), (A, B), ()]), (QUERIES[1], [(A, B)])]
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
    asked = [(query, [(A,)]) for query in QUERIES]
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
    asked = [(QUERIES[0], [(A, B), (A, B), (B, C)])]
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
    ):
        other = make_answerer(cache=cache, **more)
        list(other.ask(asked))
        assert other.num_asked == 2, more
    other = Answerer(RepeatLast(), identity="other weights", train=TRAIN, cache=cache)
    list(other.ask(asked))
    assert other.num_asked == 2
    (turned,) = first.ask([(QUERIES[0], [(B, A)])])
    assert turned[B, A].answer == "lum", "the order is part of it"


@pytest.mark.parametrize(
    ("said", "form", "answer"),
    [
        (" net\n", PUBLISHED_VQA, "net"),
        ("netQuestion:What is it? Short", PUBLISHED_VQA, "net"),
        ("What is it? A net", PUBLISHED_VQA, "What is it? A net"),
        ("\nfish net\nSay it", FewShotForm("{question}{pictures}", between="\n"), "fish net"),
        ("net; Q: What", FewShotForm("Q: {question} A:", between="; "), "net"),
        ("Question:What?", PUBLISHED_VQA, ""),
    ],
)
def test_an_answer_ends_where_another_example_begins(said, form, answer):
    assert cut_answer(said, form) == answer


def test_what_is_scored_is_the_cut_answer():
    class GoesOn(RepeatLast):
        def stream(self, *asked, **named):
            for number, outcome in super().stream(*asked, **named):
                yield number, replace(outcome, text=f"{outcome.text}Question:What?")

    (found,) = make_answerer(GoesOn()).ask([(QUERIES[0], [(A,)])])
    assert found == {(A,): Result("lum", 1.0)}


def test_what_cannot_be_asked_or_scored_is_named():
    with pytest.raises(DataError, match="unknown is no demonstration; got a list of query"):
        list(make_answerer().ask([(QUERIES[0], [(A, "unknown")])]))
    query = make_example(QUERIES[0].prompt, cluster="", fields={"question": "What?"})
    with pytest.raises(DataError, match="cannot be scored: no field answers"):
        list(make_answerer().ask([(query, [(A,)])]))


def test_conditions_differ_where_answers_may():
    ours = make_answerer().describe(sampler="pools")
    assert not find_differences(ours.describe(), ours.describe(), names=SAME_IN_EVALUATION)
    others = {
        "sampler": make_answerer().describe(sampler="other"),
        "prompt": make_answerer(form=FewShotForm("{question}")).describe(sampler="pools"),
        "decoding": make_answerer(sampling=Sampling(max_new_tokens=3)).describe(sampler="pools"),
        "answerer": Answerer(RepeatLast(), identity="b", train=[]).describe(sampler="pools"),
        "correct": make_answerer().describe(sampler="pools", correct_above=0.5),
    }
    for name, theirs in others.items():
        found = find_differences(ours.describe(), theirs.describe(), names=SAME_IN_EVALUATION)
        assert list(found) == [name]


def test_a_drawn_item_is_asked_as_a_published_one(tmp_path):
    item, other = read_dialects(write_dialects(tmp_path, seed=0, sizes={"train": 1, "test": 1}))
    shown, query = make_dialect_example(item), make_dialect_example(other)
    answerer = Answerer(RepeatLast(), identity="weights", train=[shown])
    ((result,),) = (found.values() for found in answerer.ask([(query, [(shown.id,)])]))
    assert result.answer == item.answer
    assert answerer.write_prompt(query, (shown.id,)).pictures == (item.picture, other.picture)
    assert list_contents([query]) == [(query.id, other.picture, other.question)]
    assert query.cluster == query.fields["question_id"] == "test-0"


class Replies:
    """A server that refuses one question and repeats the pictures of the others."""

    identity: ClassVar = {"model": "m", "revision": "1"}

    def __init__(self, refused: str) -> None:
        self.refused = refused

    async def respond(self, example, *, sampling):
        if example.prompt[-1].text.splitlines()[-1].startswith(f"Question:{self.refused}"):
            raise RequestError("refused", "too many pictures")
        return Reply(",".join(picture.path.stem for picture in example.pictures))


def test_a_server_is_asked_as_a_model_in_this_process_is(tmp_path):
    items = read_dialects(write_dialects(tmp_path, seed=0, sizes={"train": 3, "test": 3}))
    train, queries = (
        [make_dialect_example(one) for one in part] for part in (items[:3], items[3:])
    )
    a, b, c = (one.id for one in train)
    backend = ServerBackend(Replies(items[4].question), max_concurrency=2)
    answerer = Answerer(backend, identity="m 1", train=train)
    found = list(answerer.ask([(query, [(a,), (c, b)]) for query in queries]))
    assert [one[c, b].answer for one in found] == ["2,1,0", None, "2,1,2"]
    assert [one[a,].answer for one in found] == ["0,0", None, "0,2"]
    assert answerer.failures == {"refused": 2}


def test_an_item_without_its_picture_or_question_is_named():
    with pytest.raises(DataError, match="needs one picture; got 0"):
        list_contents([QUERIES[0].with_pictures(())])
    with pytest.raises(DataError, match="has no field question"):
        list_contents([make_example(QUERIES[0].prompt, cluster="")])
