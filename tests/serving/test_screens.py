"""A screen is labelled by the policy, by a judge where that is not sure, or by neither."""

import asyncio
import base64
from concurrent.futures import ThreadPoolExecutor

import pytest
from counting_judge import CountingJudge

from groupwise.core import digest_bytes
from groupwise.judges import NoVerdict, Verdict
from groupwise.serving import Answer
from groupwise.serving.bench import Screens
from groupwise.serving.feedback import Desk

YES, NO = "通过", "不通过"


class Judge(CountingJudge):
    """Says what it is told to."""

    name, labels = "stand-in", (YES, NO)

    def __init__(self, found=None, delay_s=0.0):
        super().__init__()
        self.found, self.delay_s = found, delay_s
        self.asked = []

    async def judge(self, question):
        self.asked.append((dict(question.texts), [one.path.name for one in question.pictures]))
        await asyncio.sleep(self.delay_s)
        return await super().judge(question)

    def decide(self, question):
        if isinstance(self.found, Exception):
            raise self.found
        return self.found


def make_verdict(probability, **other):
    label = YES if probability >= 0.5 else NO
    confidence = max(probability, 1 - probability)
    return Verdict(label, confidence, {YES: probability, NO: 1 - probability}, "0", **other)


@pytest.fixture
def sure(predictor):
    """Set how sure the policy is of its label."""

    def set_one(confidence, label=YES):
        answer = Answer("said", label, "" if label else "no label", confidence, label is None)
        predictor.answer = lambda questions: [answer for _ in questions]

    return set_one


def ask(client, picture, **fields):
    held = base64.b64encode(picture).decode()
    return client.post("/v1/screens", json={"picture": held, "task": "doors", **fields})


def test_a_screen_gets_the_label_that_predict_gives(start, draw, read_metric):
    judge = Judge(AssertionError("asked"))
    client = start(behind=Screens(judge))
    for colour, label in (("green", YES), ("red", NO)):
        found = ask(client, draw(colour), id="夜 7").json()
        row = {"row": {"task": "doors"}, "pictures": [base64.b64encode(draw(colour)).decode()]}
        predicted = client.post("/v1/predict", json=row).json()
        assert found == {
            "id": "夜 7",
            "label": label,
            "confidence": 0.9,
            "decided_by": "policy",
            "needs_person": False,
            "reason": "颜色",
            "judge": None,
            "version": "v1",
            "flip": None,
            "flip_reason": "",
            "picture_digest": digest_bytes(draw(colour)),
            "answer_id": None,
        }
        assert [predicted[key] for key in ("answer", "confidence")] == [label, 0.9]
    assert judge.asked == []
    assert read_metric(client, "groupwise_answers_unsure_total") == 0


@pytest.mark.parametrize("head", ["", "data:image/jpeg;base64,"])
def test_a_form_and_a_data_url_are_the_same_screen(start, draw, head):
    client = start(behind=Screens())
    form = client.post(
        "/v1/screens",
        files=[("picture", ("a.jpg", draw("red")))],
        data={"task": "doors", "id": "1", "session": "s"},
    )
    held = head + base64.b64encode(draw("red")).decode()
    body = {"picture": held, "task": "doors", "id": "1", "session": "s"}
    assert form.json() == client.post("/v1/screens", json=body).json()
    assert form.json()["label"] == NO


def test_what_is_no_screen_is_refused_in_a_sentence(start, draw, predictor):
    client = start(behind=Screens(), max_picture_mib=0.01, max_megapixels=0.1, max_text_kib=1)
    noise = bytes(range(256)) * 80
    pair = [("picture", ("a.jpg", draw())), ("picture", ("b.jpg", draw()))]
    one = pair[:1]

    def send(files, **data):
        return client.post("/v1/screens", files=files, data=data)

    cases = [
        (ask(client, draw(), task="windows"), 422, "there is no task 'windows'"),
        (ask(client, draw(), task=""), 422, "task: "),
        (ask(client, draw(), task="x" * 2000), 413, "text of the request is larger"),
        (ask(client, draw(), row={}), 422, "row: extra inputs are not permitted"),
        (ask(client, b"no picture"), 422, "picture 1 is no whole picture"),
        (ask(client, draw() + noise), 413, "picture 1 is larger than 0.01 MiB"),
        (ask(client, draw(size=(500, 400))), 413, "0 megapixels"),
        (client.post("/v1/screens", json={"task": "doors"}), 422, "picture: field required"),
        (client.post("/v1/screens", content=b"x"), 415, "is not taken"),
        (send(pair, task="doors"), 422, "a form has a file called picture"),
        (send([], task="doors", picture="x"), 415, "is not taken"),
        (send([("pictures", ("a.jpg", draw()))], task="doors"), 422, "a file called picture"),
        (send(one), 422, "task: field required"),
        (send(one, task="doors", row="{}"), 422, "row: extra inputs are not permitted"),
        (send(one, task=["doors", "doors"]), 422, "each once"),
        (send(one, task="doors", time="soon"), 422, "time: value error, a time is seconds, or a"),
        (ask(client, draw(), time=True), 422, "and not 'true'"),
    ]
    for answer, status, sentence in cases:
        assert answer.status_code == status, answer.text
        assert sentence in answer.json()["detail"]
    assert predictor.batches == []


def test_there_are_no_screens_where_rows_are_none(start, draw):
    client = start()
    assert ask(client, draw()).status_code == 404
    assert client.post("/v1/screens", json={}, headers={}).status_code == 404


@pytest.mark.parametrize(
    ("policy", "judged", "expected"),
    [
        ((0.6, YES), 0.95, (YES, 0.95, False, f"{YES} (0.95)", "agreed")),
        ((0.6, YES), 0.1, (NO, 0.9, False, f"{NO} (0.90)", "disagreed")),
        ((0.6, YES), 0.4, (NO, 0.6, True, f"{NO} (0.60)", "disagreed")),
        ((None, None), 0.95, (YES, 0.95, False, f"{YES} (0.95)", "disagreed")),
        ((None, YES), 0.95, (YES, 0.95, False, f"{YES} (0.95)", "agreed")),
    ],
)
def test_where_the_policy_is_not_sure_the_judge_decides(
    start, draw, sure, read_metric, policy, judged, expected
):
    sure(*policy)
    judge = Judge(make_verdict(judged))
    client = start(behind=Screens(judge))
    found = ask(client, draw()).json()
    label, confidence, needs_person, said, outcome = expected
    assert (found["label"], found["decided_by"]) == (label, "judge")
    assert found["confidence"] == pytest.approx(confidence)
    assert (found["needs_person"], found["judge"]) == (needs_person, said)
    assert [texts for texts, pictures in judge.asked] == [{"task": "doors"}]
    assert [len(pictures) for texts, pictures in judge.asked] == [1]
    assert read_metric(client, f'groupwise_judge_asked_total{{outcome="{outcome}"}}') == 1
    assert read_metric(client, "groupwise_answers_unsure_total") == 1


@pytest.mark.parametrize(
    ("found", "delay_s", "why"),
    [
        (make_verdict(0.5, is_flipped=True), 0.0, "it changed with the order of the options"),
        (NoVerdict("timeout", "secret", "0"), 0.0, "the judge failed (timeout)"),
        (ZeroDivisionError("secret"), 0.0, "the judge failed (ZeroDivisionError)"),
        (make_verdict(0.1), 30.0, "none within 0.2 s"),
    ],
)
@pytest.mark.parametrize("label", [YES, pytest.param(None, marks=pytest.mark.slow)])
def test_without_a_verdict_the_policys_answer_stands_and_a_person_should_look(
    start, draw, sure, read_metric, found, delay_s, why, label
):
    sure(0.6 if label else None, label)
    client = start(behind=Screens(Judge(found, delay_s)), screens={"judge_timeout_s": 0.2})
    told = ask(client, draw()).json()
    assert (told["label"], told["needs_person"]) == (label, True)
    assert told["decided_by"] == (label and "policy")
    assert told["judge"] == f"no verdict: {why}"
    assert read_metric(client, 'groupwise_judge_asked_total{outcome="no verdict"}') == 1


def test_a_judge_that_never_answers_holds_nobody_for_longer_than_its_time(start, draw, sure):
    sure(0.6)
    judge = Judge(make_verdict(0.9), delay_s=3600)
    limits = {"judge_timeout_s": 0.3, "max_judge_at_once": 2}
    client = start(behind=Screens(judge), screens=limits)
    with ThreadPoolExecutor(12) as pool:
        found = list(pool.map(lambda _: ask(client, draw()).json(), range(12)))
    assert {one["judge"] for one in found} == {"no verdict: none within 0.3 s"}


def test_the_judge_is_asked_by_so_many_at_once_and_no_more(start, draw, sure):
    sure(0.6)
    judge = Judge(make_verdict(0.9))
    limits = {"judge_timeout_s": 30, "max_judge_at_once": 3}
    client = start(behind=Screens(judge), screens=limits)
    with ThreadPoolExecutor(24) as pool:
        found = list(pool.map(lambda _: ask(client, draw()).json(), range(24)))
    assert {one["decided_by"] for one in found} == {"judge"}
    assert judge.most_open <= 3


@pytest.mark.parametrize(("below", "decided_by"), [(0.5, "policy"), (0.7, "judge"), (0, "policy")])
def test_how_sure_is_a_setting(start, draw, sure, below, decided_by):
    sure(0.6)
    judge = Judge(make_verdict(0.1))
    client = start(behind=Screens(judge), screens={"ask_judge_below": below})
    assert ask(client, draw()).json()["decided_by"] == decided_by


def test_without_a_judge_an_unsure_label_is_for_a_person(start, draw, sure):
    sure(0.6)
    found = ask(start(behind=Screens()), draw()).json()
    assert (found["label"], found["decided_by"], found["judge"]) == (YES, "policy", None)
    assert found["needs_person"]


def test_who_decided_is_kept_with_the_answer(start, draw, sure, store):
    sure(0.6)
    judge = Judge(make_verdict(0.1))
    desk = Desk(store, key=b"a secret of the tests")
    client = start(behind=Screens(judge), desk=desk)
    told = ask(client, draw("red"), session="s7").json()
    [shown] = store.list_unlabelled()
    assert (shown.id, shown.session, shown.row["task"]) == (told["answer_id"], "s7", "doors")
    assert shown.pictures == (told["picture_digest"],)
    assert (shown.prediction, shown.confidence, shown.version) == (YES, 0.6, "v1")
    assert (shown.decided_by, shown.judge_label) == ("judge", NO)
    assert shown.judge_probability == pytest.approx(0.9)
    body = {"answer_id": shown.id, "user": "ann", "label": NO}
    assert client.post("/v1/feedback", json=body).json()["is_correction"]


def test_a_made_stream_of_screens_is_told_its_flips_from_what_came_before(start, draw):
    client = start(behind=Screens())
    # A made stream: colour, seconds, and what is told. The second session is nobody's.
    stream = [
        ("green", 0, False),
        ("green", "1970-01-01T00:00:10Z", False),
        ("red", 20.5, True),
        ("green", "30", False),
        ("red", 300, False),
    ]
    for colour, time, is_flip in stream:
        told = ask(client, draw(colour), session="s", time=time).json()
        why = f"{YES} was said of this session 10.5 s before" if is_flip else ""
        assert (told["flip"], told["flip_reason"]) == (is_flip, why)
    for without in ({"time": 301}, {"session": "s"}, {"session": "", "time": 301}):
        told = ask(client, draw("green"), **without).json()
        assert (told["flip"], told["flip_reason"]) == (None, "")
