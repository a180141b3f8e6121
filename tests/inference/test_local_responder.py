import asyncio

import pytest

from groupwise.core import DataError, Message, ModelError, make_example, read_picture
from groupwise.inference import LocalEngine, LocalResponder, Sampling, run_on_shared_loop
from groupwise.models import load_policy

LABELS = ["yes", "no"]
SAMPLING = Sampling(max_new_tokens=6)


class CountingEngine(LocalEngine):
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
    return LocalEngine(load_policy(vision_folder), batch_size=4)


def gather(*work):
    async def wait():
        return await asyncio.gather(*work)

    return run_on_shared_loop(wait())


def test_single_requests_get_what_a_batch_gets(engine, picture_examples):
    counting = CountingEngine(engine.policy, batch_size=4)
    responder = LocalResponder(counting, model="tiny")
    replies = gather(*(responder.respond(e, sampling=SAMPLING) for e in picture_examples[:6]))
    shares = gather(*(responder.weigh_labels(e, labels=LABELS) for e in picture_examples[:6]))
    drawn = engine.generate(picture_examples[:6], sampling=SAMPLING)
    assert [reply.text for reply in replies] == [row[0].text for row in drawn]
    for share, expected in zip(
        shares, engine.label_probabilities(picture_examples[:6], labels=LABELS), strict=True
    ):
        assert share.shares == pytest.approx(expected, abs=1e-5)
    assert counting.sizes == [4, 2, 4, 2]
    assert {reply.usage.completion_tokens for reply in replies} <= set(range(1, 7))


def test_what_fails_is_told_to_those_who_wait_and_the_next_is_answered(engine, picture_examples):
    responder = LocalResponder(engine, model="tiny")
    with pytest.raises(ModelError, match="spelled in the tokens of another"):
        run_on_shared_loop(responder.weigh_labels(picture_examples[0], labels=["yes", "Yes"]))
    assert run_on_shared_loop(responder.weigh_labels(picture_examples[0], labels=LABELS)).shares


def test_a_picture_that_changed_is_not_looked_at(engine, picture_examples, tmp_path):
    path = tmp_path / "a.png"
    path.write_bytes(picture_examples[0].pictures[0].path.read_bytes())
    example = make_example([Message("user", "?")], cluster="g", pictures=[read_picture(path)])
    path.write_bytes(picture_examples[1].pictures[0].path.read_bytes())
    with pytest.raises(DataError, match="changed"):
        run_on_shared_loop(LocalResponder(engine, model="t").respond(example, sampling=SAMPLING))


def test_the_revision_is_that_of_the_weights(vision_folder):
    first, second = (load_policy(vision_folder) for _ in range(2))
    revisions = [
        LocalResponder(LocalEngine(policy), model="tiny").identity["revision"]
        for policy in (first, second)
    ]
    assert revisions[0] == revisions[1]
    next(second.model.parameters()).data[0] += 1e-3
    changed = LocalResponder(LocalEngine(second), model="tiny").identity
    assert changed == {"model": "tiny", "revision": changed["revision"]}
    assert changed["revision"] != revisions[0]
    third = load_policy(vision_folder)
    text = third.model.config.text_config
    text.hidden_act = "gelu" if text.hidden_act != "gelu" else "silu"
    other = LocalResponder(LocalEngine(third), model="tiny").identity["revision"]
    assert other != revisions[0]
    assert (
        LocalResponder(LocalEngine(second), model="t", revision="r1").identity["revision"] == "r1"
    )
