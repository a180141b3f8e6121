"""What several processes read and leave: together the batches of one, and checkpoints of all."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupwise.core import TrainingError
from groupwise.training import checkpoints
from groupwise.training.checkpoints import find_start, mark_complete
from groupwise.training.grpo import deal_prompts
from groupwise.training.on_policy import OnPolicyResult, join_results
from groupwise.training.processes import ask_first, divide_batch, is_first_process
from groupwise.training.sft import ReadAhead, count_places


@given(
    num_processes=st.integers(1, 4),
    own=st.integers(1, 3),
    num_parts=st.integers(1, 4),
    num_rounds=st.integers(1, 3),
)
def test_micro_batches_of_all_processes_have_the_prompts_of_one(
    num_processes, own, num_parts, num_rounds
):
    per_step = num_processes * own
    per_round = per_step * num_parts
    layout = [(0, place) for place in range(per_round * num_rounds)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WORLD_SIZE", str(num_processes))
        dealt = deal_prompts(layout, prompts_per_step=per_step, prompts_per_round=per_round)
    for number in range(num_rounds):
        start, end = number * per_round, (number + 1) * per_round
        one = [layout[start:end][k * per_step : (k + 1) * per_step] for k in range(num_parts)]
        # As Accelerate shares out a round, and the trainer splits what it gets.
        stretch = own * num_parts
        shares = [dealt[start:end][n * stretch : (n + 1) * stretch] for n in range(num_processes)]
        together = [
            [prompt for share in shares for prompt in share[k * own : (k + 1) * own]]
            for k in range(num_parts)
        ]
        assert together == one


@pytest.mark.parametrize(("num_rows", "num_places"), [(8, 8), (9, 12), (10, 12), (12, 12)])
def test_the_last_batch_has_a_place_for_every_process(num_rows, num_places, monkeypatch):
    assert count_places(num_rows, batch_size=4) == num_rows
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert count_places(num_rows, batch_size=4) == num_places


def test_a_batch_that_cannot_be_shared_equally_is_refused(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "3")
    assert divide_batch(12, setting="batch_size") == 4
    with pytest.raises(TrainingError, match="batch_size 8 cannot be shared equally by 3 processes"):
        divide_batch(8, setting="batch_size")


def test_what_is_read_ahead_is_the_process_s_own_next_batch():
    made = []
    read = ReadAhead(lambda places: made.append(list(places)), num_rows=12, num_processes=3)
    for places in ([2, 3], [8, 9]):
        read(places)
    read._pool.shutdown()
    assert made == [[2, 3], [8, 9]]


@pytest.mark.parametrize(
    ("names", "num_writers"), [(["rng_state.pth"], 1), (["rng_state_0.pth", "rng_state_1.pth"], 2)]
)
def test_a_checkpoint_is_continued_by_as_many_as_wrote_it(
    names, num_writers, tmp_path: Path, monkeypatch
):
    checkpoint = tmp_path / "checkpoint-3"
    checkpoint.mkdir()
    for name in names:
        (checkpoint / name).touch()
    mark_complete(checkpoint)
    monkeypatch.setattr(checkpoints, "ask_first", lambda find: find())
    for num_processes in (1, 2):
        monkeypatch.setenv("WORLD_SIZE", str(num_processes))
        if num_processes == num_writers:
            assert find_start(tmp_path) == checkpoint
            continue
        sentence = f"was written by {num_writers} .*; got {num_processes} processes"
        with pytest.raises(TrainingError, match=sentence):
            find_start(tmp_path)


def test_only_the_first_process_writes(monkeypatch):
    assert is_first_process()
    assert ask_first(lambda: 7) == 7
    monkeypatch.setenv("RANK", "1")
    assert not is_first_process()


def test_the_on_policy_check_of_all_is_its_worst():
    found = [OnPolicyResult(8, 1e-6, None, 1e-5), OnPolicyResult(4, 3e-6, None, 2e-5)]
    assert join_results(found) == OnPolicyResult(12, 3e-6, None, 2e-5)
    found = [OnPolicyResult(8, 1e-6, 0.0, 1e-5), OnPolicyResult(4, 0.0, 2e-7, 1e-5)]
    assert join_results(found).max_kl == 2e-7
