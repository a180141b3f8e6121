import asyncio

import pytest

from groupwise.inference import RequestError, RetrySettings, retry

QUICK = RetrySettings(max_attempts=4, base_delay_s=0.0)


def test_delays_double_up_to_the_longest_with_jitter():
    settings = RetrySettings(base_delay_s=1.0, max_delay_s=5.0)
    for num_failures, longest in [(1, 1.0), (2, 2.0), (3, 4.0), (4, 5.0), (2000, 5.0)]:
        delays = {settings.choose_delay(num_failures, None) for _ in range(50)}
        assert longest / 2 <= min(delays) < max(delays) <= longest


def test_a_server_is_given_the_time_it_asks_for():
    settings = RetrySettings(base_delay_s=1.0, max_delay_s=5.0)
    assert settings.choose_delay(1, 60.0) == 60.0
    assert settings.choose_delay(3, 0.1) >= 2.0


@pytest.mark.parametrize(
    ("cause", "retry_after_s", "num_attempts"),
    [("empty", None, 4), ("unparsable", 0.0, 4), ("refused", None, 1), ("rate_limit", 121.0, 1)],
)
def test_what_cannot_help_is_not_repeated(cause, retry_after_s, num_attempts):
    failures = []

    async def fail():
        raise RequestError(cause, "no", retry_after_s=retry_after_s)

    with pytest.raises(RequestError, match="no"):
        asyncio.run(retry(fail, QUICK, on_failure=failures.append))
    assert len(failures) == num_attempts


def test_the_first_success_ends_it():
    left = [RequestError("empty", "no"), RequestError("timeout", "no")]

    async def fail_twice():
        if left:
            raise left.pop()
        return "yes"

    assert asyncio.run(retry(fail_twice, QUICK)) == "yes"
