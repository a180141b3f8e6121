from collections import Counter
from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from groupwise.evaluation import Confusion, Prediction, count_confusion

LABELS = ("通过", "不通过", "待定")
Table = Callable[..., list[Prediction]]
ANSWERS = st.tuples(st.sampled_from(LABELS), st.sampled_from([*LABELS, None]))


def count_correct(confusion: Confusion) -> int:
    return sum(row[place] for place, row in enumerate(confusion.counts))


def count_invalid(confusion: Confusion) -> int:
    return sum(row[-1] for row in confusion.counts)


def test_counts_of_a_hand_made_table(make_table: Table) -> None:
    rows = [("a", "a"), ("a", "b"), ("a", None), ("b", "b"), ("b", "b"), ("b", None)]
    confusion = count_confusion(make_table(rows), ("a", "b"))
    assert confusion.counts == ((1, 1, 1), (0, 2, 1))
    assert (confusion.num_items, count_correct(confusion), count_invalid(confusion)) == (6, 3, 2)


def test_no_predictions_give_zeros() -> None:
    assert count_confusion([], ("a", "b")) == Confusion(("a", "b"), ((0, 0, 0), (0, 0, 0)))


@given(st.lists(ANSWERS, max_size=40))
def test_every_item_is_counted_once_and_invalid_is_no_class(
    rows: list[tuple[str, str | None]],
) -> None:
    predictions = [
        Prediction(f"i{n}", "g", "test", "grpo", truth, answer, "" if answer else "invalid")
        for n, (truth, answer) in enumerate(rows)
    ]
    confusion = count_confusion(predictions, LABELS)
    pairs = Counter(rows)
    assert confusion.counts == tuple(
        tuple(pairs[truth, answer] for answer in (*LABELS, None)) for truth in LABELS
    )
    assert confusion.num_items == len(rows)
    assert count_invalid(confusion) == sum(answer is None for _, answer in rows)
    assert count_correct(confusion) == sum(truth == answer for truth, answer in rows)
