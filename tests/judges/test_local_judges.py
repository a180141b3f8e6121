"""The same judges with a model in this process, with pictures and without."""

import pytest

from groupwise.inference import LocalEngine, LocalResponder, Sampling
from groupwise.judges import (
    GenerativeJudge,
    JudgePrompt,
    JudgeSettings,
    LogitJudge,
    NoVerdict,
    Question,
    ReplyCache,
    judge_all,
)
from groupwise.models import load_policy

PROMPT = JudgePrompt("{{task}}\n{{options}}\nLetter:")


@pytest.fixture(scope="module")
def responder(vision_folder):
    return LocalResponder(LocalEngine(load_policy(vision_folder), batch_size=4), model="tiny")


def list_questions(examples):
    return [Question({"task": e.prompt[-1].text}, e.pictures) for e in examples]


def test_a_picture_judge_gives_what_the_engine_gives(responder, picture_examples, tmp_path):
    judge = LogitJudge(
        responder, PROMPT, labels=("on", "off"), cache=ReplyCache(tmp_path / "cache")
    )
    questions = list_questions(picture_examples)
    verdicts = judge_all(judge, questions)
    for question, verdict in zip(questions, verdicts, strict=True):
        given, swapped = (
            responder.engine.label_probabilities(
                [judge.build_example(question, order)], labels=["A", "B"]
            )[0]
            for order in ((0, 1), (1, 0))
        )
        mean = (given["A"] + swapped["B"]) / 2
        assert verdict.probabilities["on"] == pytest.approx(mean, abs=1e-5)
        assert verdict.position_bias == pytest.approx(abs(given["A"] - swapped["B"]), abs=1e-5)
        assert verdict.is_flipped == ((given["A"] > 0.5) != (swapped["B"] > 0.5))
    assert len({verdict.probabilities["on"] for verdict in verdicts}) == len(verdicts)
    again = judge_all(judge, questions)
    assert all(verdict.is_cached for verdict in again)
    assert [v.probabilities for v in again] == [v.probabilities for v in verdicts]


def test_a_model_that_babbles_gives_no_verdict(text_folder, quick):
    responder = LocalResponder(LocalEngine(load_policy(text_folder)), model="tiny")
    judge = GenerativeJudge(
        responder,
        JudgePrompt("{{answer}}?"),
        sampling=Sampling(max_new_tokens=16),
        settings=quick(max_attempts=2),
    )
    (result,) = judge_all(judge, [Question({"answer": "4"})])
    assert isinstance(result, NoVerdict)
    assert result.cause in ("unparsable", "truncated", "empty")
    assert (result.num_attempts, result.usage.num_calls) == (2, 2)
    assert result.usage.completion_tokens > 0
    assert judge.describe()["revision"] == responder.identity["revision"]


def test_settings_are_no_part_of_the_version(responder):
    one = LogitJudge(responder, PROMPT, labels=("on", "off"))
    other = LogitJudge(responder, PROMPT, labels=("on", "off"), settings=JudgeSettings())
    assert one.version == other.version
    assert one.version != LogitJudge(responder, PROMPT, labels=("off", "on")).version
