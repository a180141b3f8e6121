"""Tables that every page has."""

from types import SimpleNamespace

import pytest

from groupwise.evaluation import Confusion, Prediction, compute_metrics
from groupwise.evaluation.page import Tables, Words, tabulate_confusion, tabulate_metrics
from groupwise.evaluation.report.results import show_slices

LONG = (
    "设备运行状态异常需要现场工程师在二十四小时之内到场检查",
    "the device was returned as it may be",
)


@pytest.mark.parametrize("labels", [("合规", "违规"), LONG])
def test_a_confusion_names_every_label_whole_and_keeps_its_columns_narrow(
    labels: tuple[str, str],
) -> None:
    table = tabulate_confusion("", Confusion(labels, ((3, 1, 0), (0, 5, 0))), Words("zh"))
    assert all(label in row[0].text for label, row in zip(labels, table.cells, strict=True))
    assert max(map(len, table.head[1:])) <= 12
    assert [(one.text, one.note) for one in table.cells[0][1:]] == [
        ("3", "75.0\u00a0%"),
        ("1", "25.0\u00a0%"),
        ("0", ""),
    ]
    assert len({one.style for row in table.cells for one in row[1:]}) == 4


def answer(number: int, **fields: str) -> Prediction:
    return Prediction(
        example_id=f"i{number}",
        cluster=f"g{number}",
        split="test",
        policy="grpo",
        label="a",
        predicted="a",
        fields=fields,
        scores={"vqa": 0.5} if number else {},
    )


def test_a_row_without_the_counted_measure_tells_the_number_of_what_it_shows() -> None:
    by_name = {m.measure: m for m in compute_metrics([answer(0), answer(1)], labels=())}
    rows = [("whole", by_name), ("part", {"vqa": by_name["vqa"]}), ("none", {})]
    table = tabulate_metrics(rows, {"vqa": "VQA"}, head="policy", count="accuracy")
    assert [row[-1] for row in table.rows] == ["2", "1", "–"]


@pytest.mark.parametrize(("num_values", "is_wide"), [(3, False), (4, True)])
def test_slices_of_many_values_stand_below_each_other(num_values: int, is_wide: bool) -> None:
    rows = [answer(number, kind=str(number)) for number in range(num_values)]
    found = {m.measure: m for m in compute_metrics(rows, labels=(), slices=("kind",))}
    report = SimpleNamespace(main={"grpo": found}, split="test")
    [part] = show_slices(report, Words("en"))  # pyright: ignore[reportArgumentType]
    assert [one.is_wide for one in part.blocks if isinstance(one, Tables)] == [is_wide]
