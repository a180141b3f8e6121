import pytest
from pydantic import ValidationError

from groupwise.core import JudgeError
from groupwise.inference import Usage
from groupwise.judges import Ledger, NoVerdict, StopSettings, Verdict

GOOD = Verdict("True", 1.0, {"True": 1.0}, "v", usage=Usage(1, 10, 2, 0.5))
LATE = NoVerdict("timeout", "no reply within 5 s.", "v", Usage(3, 30))
FLIPPED = Verdict("True", 0.0, {"True": 1.0}, "v", is_flipped=True, is_cached=True)


def fill(results, **stop):
    ledger = Ledger("mine", StopSettings(**stop))
    for result in results:
        ledger.record(result)
    return ledger


def test_everything_is_counted():
    report = fill([GOOD, LATE, FLIPPED, GOOD]).report()
    assert report["num_questions"] == 4
    assert (report["num_cached"], report["num_flipped"]) == (1, 1)
    assert (report["no_verdicts"], report["no_verdict_rate"]) == ({"timeout": 1}, 0.25)
    assert (report["num_calls"], report["prompt_tokens"], report["cost"]) == (5, 50, 1.0)
    assert fill([]).report()["no_verdict_rate"] is None


def test_a_long_good_past_does_not_hide_that_the_judge_is_gone():
    ledger = fill([GOOD] * 500 + [LATE] * 2, min_questions=4, window=4, max_no_verdict_rate=0.5)
    ledger.check()
    ledger.record(LATE)
    with pytest.raises(JudgeError, match=r"'mine' gave no verdict on 3 of the last 4 .*5 s;"):
        ledger.check()


def test_a_few_questions_are_no_rate():
    fill([LATE] * 19).check()
    with pytest.raises(JudgeError, match="20 of the last 20"):
        fill([LATE] * 20).check()


def test_flips_and_cached_verdicts_are_no_failures_and_no_successes():
    with pytest.raises(JudgeError, match="4 of the last 4"):
        fill([FLIPPED] * 100 + [LATE] * 4, min_questions=4, window=50).check()


def test_a_window_holds_the_questions_that_a_rate_needs():
    with pytest.raises(ValidationError, match="window"):
        StopSettings(min_questions=10, window=5)
