"""Tables that every page has."""

import pytest

from groupwise.evaluation import Confusion
from groupwise.evaluation.page import Words, tabulate_confusion

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
