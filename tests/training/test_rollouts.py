"""Completions and scores come back as they were; what is sampled again is not there twice."""

from hypothesis import given
from hypothesis import strategies as st

from groupwise.core import Completion, Score, make_example
from groupwise.core.example import Message
from groupwise.training import read_rollouts
from groupwise.training.checkpoints import RolloutLog

EXAMPLE = make_example([Message("user", "is it?")], cluster="g")
VALUES = st.none() | st.floats(0, 1)
SCORES = st.builds(
    Score, VALUES, st.text(), st.dictionaries(st.text(), VALUES), invalid=st.booleans()
)
COMPLETIONS = st.builds(
    Completion,
    st.text(st.characters(exclude_categories=["Cs"])),
    st.lists(st.integers(0, 9)).map(tuple),
    finish_reason=st.sampled_from(["stop", "length"]),
)


@given(st.lists(st.tuples(COMPLETIONS, SCORES), min_size=1, max_size=3))
def test_what_is_written_is_read(tmp_path_factory, pairs):
    path = tmp_path_factory.mktemp("log") / "rollouts.jsonl"
    completions, scores = zip(*pairs, strict=True)
    RolloutLog(path).write(3, [EXAMPLE] * len(pairs), completions, scores)
    [batch] = read_rollouts(path)
    assert [(one.completion, one.score) for one in batch] == pairs
    assert {(one.step, one.example) for one in batch} == {(3, EXAMPLE.id)}


def test_steps_that_are_done_again_are_dropped(tmp_path):
    log = RolloutLog(tmp_path / "rollouts.jsonl")
    for step in range(4):
        log.write(step, [EXAMPLE], [Completion("a", (step,), finish_reason="stop")], [Score(1.0)])
    log.start(2)
    assert [batch[0].step for batch in read_rollouts(log.path)] == [0, 1]
    log.start(0)
    assert not list(read_rollouts(log.path))
