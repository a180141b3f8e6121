import os
import pickle
import signal
from concurrent.futures import ThreadPoolExecutor

import pytest

from groupwise.core import Completion, Example, Message, RewardError, Score, make_example
from groupwise.rewards import MathEquality
from groupwise.rewards.math_workers import MathWorkers

SLOW = r"\int \sin(x^x)^{\tan(x)} e^{\cos(x)} \ln(x) dx"
HALF = Completion(r"\boxed{\frac{\sqrt{4}}{4}}")


REWARD = MathEquality(workers=MathWorkers(2, cpu_limit_s=1.5))


def make_item(label: str) -> Example:
    return make_example([Message("user", "How many?")], cluster="g", label=label)


def test_an_answer_that_takes_too_long_holds_up_no_other() -> None:
    items = [make_item(r"\int x dx"), *[make_item("0.5")] * 3]
    texts = [Completion(rf"\boxed{{{SLOW}}}"), *[HALF] * 3]
    assert REWARD(items[1], HALF).value == 1.0
    group = REWARD._workers._group
    done: list[int] = []

    def work(place: int) -> Score:
        score = REWARD(items[place], texts[place])
        done.append(place)
        return score

    with ThreadPoolExecutor(2) as threads:
        scores = list(threads.map(work, range(4)))
    assert scores[0] == Score(0.0, "the marked answer is too slow", invalid=True)
    assert [score.value for score in scores[1:]] == [1.0] * 3
    assert done == [1, 2, 3, 0]
    assert REWARD.score_batch(items[1:], texts[1:]) == scores[1:]
    assert REWARD._workers._group is group, "the program was started again"


def test_processes_that_are_ended_or_stand_still_give_no_score() -> None:
    workers = MathWorkers(2)
    reward = MathEquality(workers=workers)
    item = make_item("0.5")
    for end, limit_s in ((signal.SIGKILL, 60.0), (signal.SIGSTOP, 0.2)):
        assert reward(item, HALF).value == 1.0
        workers.wall_limit_s = limit_s
        assert workers._group is not None
        os.killpg(workers._group._process.pid, end)
        got = reward(item, HALF)
        assert (got.value, got.invalid) == (None, False)
        assert workers._group is None


def test_a_label_whose_reading_is_cut_off_is_no_error_of_the_data() -> None:
    reward = MathEquality(workers=MathWorkers(1, wall_limit_s=0.0001))
    item = make_item(r"\sqrt{2}")
    assert reward(item, HALF) == Score(None, r"reading the label \sqrt{2} timed out")
    assert reward.explain_unusable(item) is None


def test_a_program_that_cannot_work_is_an_error() -> None:
    with pytest.raises(RewardError, match="the process that compares mathematics ended"):
        MathEquality(workers=MathWorkers(1, memory_mib=20))(make_item("0.5"), HALF)


def test_forks_and_copies_have_processes_of_their_own_that_end_with_them() -> None:
    item = make_item("0.5")
    assert REWARD(item, HALF).value == 1.0
    group = REWARD._workers._group
    child = os.fork()
    if child == 0:
        is_right = REWARD(item, HALF).value == 1.0
        os._exit(0 if is_right and REWARD._workers._group is not group else 1)
    assert os.waitpid(child, 0)[1] == 0
    copy = pickle.loads(pickle.dumps(REWARD))
    assert copy(item, HALF).value == 1.0
    process = copy._workers._group._process
    del copy
    assert process.wait(timeout=60) == -signal.SIGKILL
    assert REWARD(item, HALF).value == 1.0
    assert REWARD._workers._group is group
