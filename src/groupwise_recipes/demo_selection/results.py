"""What the report shows of the cells: a policy for each way of choosing, a measure per shots."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from groupwise.core import Example
from groupwise.evaluation.predictions import Measure, PolicyKind, Prediction, RunPolicy
from groupwise.rewards import VqaParser
from groupwise_recipes.demo_selection.cells import Cell, CellRow
from groupwise_recipes.demo_selection.evaluation import REVERSED
from groupwise_recipes.demo_selection.pointwise import POINTWISE

MEAN = "vqa_mean"
_KINDS: Mapping[str, PolicyKind] = {
    "oracle": "bound",
    "rce": "trained",
    "grpo": "trained",
    f"grpo{REVERSED}": "trained",
}


@dataclass(frozen=True, slots=True)
class Way:
    """A way of choosing demonstrations, in words.

    Attributes:
        title, title_zh: for readers.
        note, note_zh: what it is.
    """

    title: str
    title_zh: str
    note: str
    note_zh: str


WAYS: Mapping[str, Way] = {
    "none": Way("No demonstrations", "无示例", "the question alone", "只有问题"),
    "random": Way("Random", "随机", "drawn from the pool", "从候选池中随机抽取"),
    "nearest_text": Way(
        "Nearest by text", "文本最近", "the most similar questions of the pool", "池中问题最相似者"
    ),
    "nearest_picture": Way(
        "Nearest by picture",
        "图片最近",
        "the most similar pictures of the pool",
        "池中图片最相似者",
    ),
    "nearest_both": Way(
        "Nearest by both", "图文最近", "by the mean of both embeddings", "按两种嵌入的均值"
    ),
    "mmices": Way(
        "MMICES",
        "MMICES",
        "the most similar questions among the most similar pictures",
        "先取相似图片，再取其中问题最相似者",
    ),
    "knn_few_shot": Way(
        "KNNFewShot",
        "KNNFewShot",
        "nearest by text in all train items, not in the pool alone",
        "在全部训练条目（不限候选池）中取问题最近者",
    ),
    POINTWISE: Way(
        "Pointwise",
        "逐项打分",
        "logistic regression on the items of the selector's recorded lists",
        "在选择器所学的同一批列表上，对单个条目做逻辑回归",
    ),
    f"{POINTWISE}{REVERSED}": Way(
        "Pointwise, reversed",
        "逐项打分，倒序",
        "the same demonstrations in the opposite order",
        "同样的示例，顺序相反",
    ),
    "oracle": Way(
        "Best of the tried",
        "所试之最佳",
        "the best of the lists tried on the test query itself: an upper bound that sees the answer",
        "在测试问题上试过的列表中最好的一个：看过答案的上界",
    ),
    "rce": Way("RCE", "RCE", "the selector after RCE", "RCE 之后的选择器"),
    f"grpo{REVERSED}": Way(
        "GRPO, reversed",
        "GRPO，倒序",
        "the same demonstrations in the opposite order",
        "同样的示例，顺序相反",
    ),
    "grpo": Way("GRPO", "GRPO", "the selector after GRPO", "GRPO 之后的选择器"),
}
"""Ways by system, in the order of reports; the last one is what others are compared with."""


def name_measure(shots: int) -> str:
    """Return the name of VQA accuracy at so many shots."""
    return f"vqa_{shots}"


def name_shots(number: int) -> str:
    """Return a number of shots in words: ``1 shot``, ``2 shots``."""
    return f"{number} shot{'' if number == 1 else 's'}"


def list_measures(shots: Iterable[int]) -> tuple[Measure, ...]:
    """Return the measures, the mean over shots first."""
    return (
        Measure(MEAN, "VQA accuracy, mean over shots", "VQA 准确率（各示例数平均）"),
        *(
            Measure(
                name_measure(number),
                f"VQA accuracy, {name_shots(number)}",
                f"VQA 准确率（{number} 个示例）",
            )
            for number in shots
        ),
    )


def list_policies(systems: Iterable[str]) -> list[RunPolicy]:
    """Return what is known of the ways of choosing that were evaluated, in the order of reports."""
    known = set(systems)
    return [
        RunPolicy(
            name=name,
            title=way.title,
            title_zh=way.title_zh,
            note=way.note,
            note_zh=way.note_zh,
            kind=_KINDS.get(name, "baseline"),
            step=step,
            trained_from="rce" if step == "grpo" and "rce" in known else None,
            trained_on=("anchors", "validation") if step else (),
            weights=f"{step}/policy" if step else None,
        )
        for name, way in WAYS.items()
        if name in known
        for step in [name.removesuffix(REVERSED) if _KINDS.get(name) == "trained" else None]
    ]


def make_predictions(
    test: Sequence[Example], cells: Mapping[Cell, Sequence[CellRow]], *, shots: Sequence[int]
) -> list[Prediction]:
    """Return a prediction of each system for each test item, with a score for each number of shots.

    The answer that is shown is that of the most shots. An item of which an evaluation failed has no
    score there, and none in the mean.

    Args:
        test: the items.
        cells: rows of the items, of one epoch of each training; the cell of ``none`` counts for
            every number of shots.
        shots: numbers of demonstrations.
    """
    found: dict[str, dict[int, dict[str, CellRow]]] = {}
    for cell, rows in cells.items():
        own = {row.id: row for row in rows}
        for number in (cell.shots,) if cell.shots else shots:
            found.setdefault(cell.system, {})[number] = own
    return [
        _predict(system, item, {number: own[item.id] for number, own in by_shots.items()}, shots)
        for system, by_shots in found.items()
        for item in test
    ]


def _predict(
    system: str, item: Example, rows: Mapping[int, CellRow], shots: Sequence[int]
) -> Prediction:
    last = rows[max(rows)]
    scores = {
        name_measure(number): row.accuracy
        for number, row in rows.items()
        if row.accuracy is not None
    }
    if len(scores) == len(shots):
        scores[MEAN] = sum(scores.values()) / len(shots)
    said, reason = _read(item, last.answer)
    return Prediction(
        example_id=item.id,
        cluster=item.cluster,
        split="test",
        policy=system,
        label=str(item.label),
        predicted=said,
        reason=reason,
        text=last.answer or "",
        pictures=tuple(str(picture.path) for picture in item.pictures),
        picture_digests=tuple(picture.digest for picture in item.pictures),
        fields={"question": item.fields["question"], "demonstrations": list(last.demos)},
        scores=scores,
    )


def _read(item: Example, answer: str | None) -> tuple[str | None, str]:
    """Return what an answer says, in the label's own spelling if it is that, or why nothing."""
    if answer is None:
        return None, "the evaluation failed"
    parser = VqaParser()
    found = parser.parse(answer, item)
    if found.label is not None and parser.measure(item, answer) == 1.0:
        return str(item.label), ""
    return found.label, found.reason
