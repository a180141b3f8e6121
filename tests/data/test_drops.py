from hypothesis import given
from hypothesis import strategies as st

from groupwise.data import DropLog


@given(st.lists(st.tuples(st.sampled_from("abc"), st.text(max_size=3))))
def test_counts_and_rows_add_up(drops: list[tuple[str, str]]) -> None:
    log = DropLog()
    for reason, where in drops:
        log.add(reason, where)
    assert log.total == len(drops) == sum(log.counts.values()) == len(log.rows)
    assert log.to_json() == {
        "total": len(drops),
        "counts": log.counts,
        "rows": [{"reason": reason, "where": where} for reason, where in drops],
    }


def test_the_most_frequent_reason_comes_first() -> None:
    log = DropLog()
    for reason in ("b", "a", "c", "c"):
        log.add(reason, "x")
    assert list(log.counts.items()) == [("c", 2), ("a", 1), ("b", 1)]
