"""Several test sets side by side: accuracy, pair accuracy and invalid answers of each."""

from collections.abc import Sequence
from dataclasses import replace

from groupwise.evaluation.metrics import compute_metrics
from groupwise.evaluation.predictions import Policies, Prediction, RunPolicy
from groupwise.evaluation.report.page import Table
from groupwise.evaluation.report.tables import Section
from groupwise_recipes.visual_reasoning.config import LABELS
from groupwise_recipes.visual_reasoning.sections import make_source_sections

POLICIES = Policies((RunPolicy(name="grpo", title="GRPO", title_zh="GRPO", kind="trained"),))


def answer(source: str, answers: Sequence[str | None]) -> list[Prediction]:
    """Answer pairs whose first half is true and whose second is false."""
    return [
        Prediction(
            example_id=f"{source}-{n}",
            cluster=f"{n // 2}",
            split="test",
            policy="grpo",
            label=LABELS[n % 2],
            predicted=said,
            reason="" if said else "no answer",
            text="",
            pair=f"{source} {n // 2}",
            fields={"source": source},
        )
        for n, said in enumerate(answers)
    ]


def make(predictions: Sequence[Prediction]) -> list[Section]:
    metrics = compute_metrics(predictions, labels=LABELS, slices=("source",))
    return make_source_sections(metrics, POLICIES)


def test_each_test_set_has_its_own_columns() -> None:
    flat = answer("flat", ["True", "False", "True", "False", "True", "True"])
    textured = answer("textured", ["True", "True", "False", None, "False", "False"])
    english, chinese = make([*flat, *textured])
    assert (english.language, chinese.language) == ("en", "zh")
    (table,) = english.tables
    assert isinstance(table, Table)
    assert [str(name) for name in table.head[1:]] == [
        f"{measure} on {source}"
        for measure in ("Accuracy", "Pair accuracy", "Invalid answers")
        for source in ("flat", "textured")
    ]
    (row,) = table.rows
    shares = [str(cell).split()[0] for cell in row[1:]]
    assert shares == ["83.3", "33.3", "66.7", "0.0", "0.0", "16.7"]


def test_the_iou_of_boxes_is_told_by_test_set() -> None:
    rows = [*answer("flat", ["True", "False"]), *answer("textured", ["True", "False"])]
    rows = [replace(one, scores={"box_iou": n / 4}) for n, one in enumerate(rows)]
    (table,) = make([*rows, *answer("no boxes", ["True", "False"])])[0].tables
    assert isinstance(table, Table)
    columns = dict(zip(table.head, map(str, table.rows[0]), strict=True))
    assert columns["IoU of boxes on flat"].startswith("12.5")
    assert columns["IoU of boxes on textured"].startswith("62.5")
    assert "IoU of boxes on no boxes" not in columns


def test_one_test_set_needs_no_table() -> None:
    assert make(answer("flat", ["True", "False"])) == []
