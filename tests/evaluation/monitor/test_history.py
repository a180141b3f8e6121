from groupwise.evaluation.monitor import History, Series


def test_rows_become_series():
    rows = [{"step": 1, "loss": 2}, {"step": 4, "loss": 1.5, "kl": 0.1}]
    history = History(rows)
    assert history.read("loss") == Series("loss", (1, 4), (2.0, 1.5))
    assert history.read("kl") == Series("kl", (4,), (0.1,))
    assert not history.read("reward")
    assert history.last_step == 4
    history = History([*rows, {"step": 9, "loss": 1}])
    assert history.read("loss").values == (2.0, 1.5, 1.0)
    assert history.last_step == 9


def test_what_is_no_number_is_left_out():
    rows = [
        {"step": 1, "loss": float("nan"), "note": "x", "is_last": True, "empty": None},
        {"loss": 3.0},
        {"step": "2", "loss": 3.0},
        {"step": 3, "loss": float("inf")},
    ]
    history = History(rows)
    assert [series.key for series in history.list_series()] == []
    assert History().is_empty
    assert not history.is_empty


def test_series_stand_in_the_order_people_look_at_them():
    row = {
        "tokens_per_s": 1,
        "zeta": 1,
        "loss": 1,
        "heldout/n": 96,
        "heldout/invalid": 0,
        "heldout/accuracy": 1,
        "reward/format": 1,
        "reward/format_std": 1,
        "reward": 1,
        "epoch": 1,
        "skipped_rows": 0,
        "step": 1,
    }
    assert [series.key for series in History([row]).list_series()] == [
        "reward",
        "reward/format",
        "heldout/accuracy",
        "heldout/invalid",
        "loss",
        "tokens_per_s",
        "zeta",
    ]


def test_a_log_is_read_where_it_has_numbers():
    rows = ({"step": 1, "kl": 0.1}, {"step": 2, "kl": None}, {"kl": 3.0}, {"step": 3, "kl": 0})
    found = History(rows).read("kl")
    assert (found.steps, found.values) == ((1, 3), (0.1, 0.0))
    parts = History([{"step": 1, "reward": 1, "reward/b": 1, "reward/a": 1, "reward/a_std": 0}])
    assert parts.list_parts() == ["a", "b"]
    assert parts.is_rewarded
    assert not History(rows).is_rewarded
