"""Wrong tokens are counted by address, and forgotten with time."""

from groupwise.serving.guesses import Guesses


def test_ten_at_once_then_one_each_ten_seconds():
    now = [0.0]
    guesses = Guesses(lambda: now[0])

    def guess():
        if guesses.are_too_many("a"):
            return False
        guesses.note("a")
        return True

    assert [guess() for _ in range(12)] == [True] * 10 + [False] * 2
    now[0] += 9.9
    assert not guess()
    now[0] += 0.1
    assert (guess(), guess(), guesses.are_too_many("b")) == (True, False, False)
    now[0] += 1000
    assert [guess() for _ in range(11)] == [True] * 10 + [False]


def test_addresses_are_not_kept_without_end():
    guesses = Guesses(lambda: 0.0)
    for number in range(10_100):
        guesses.note(str(number))
    assert len(guesses._known) == 10_000


def test_the_servers_own_token_is_guessed_no_faster(start):
    client = start(token="geheimnis")
    wrong, right = ({"Authorization": f"Bearer {word}"} for word in ("falsch", "geheimnis"))
    found = [client.get("/v1/model", headers=wrong).status_code for _ in range(11)]
    assert found == [401] * 10 + [429]
    assert client.get("/v1/model", headers=right).status_code == 429
    elsewhere = {"X-Forwarded-For": "192.0.2.9"}
    assert client.get("/v1/model", headers=right | elsewhere).status_code == 200
    assert [client.get("/v1/model").status_code, client.get("/healthz").status_code] == [429, 200]
