"""Ten mistakes worth looking at: the wrong answers a policy was most sure of.

Chooses items and finds their pictures; nothing is drawn here.
"""

from collections.abc import Sequence
from pathlib import Path

from groupwise.evaluation.predictions import Prediction
from groupwise.evaluation.report.content import Mistake, Mistakes

NUM_SHOWN = 10


def choose_mistakes(predictions: Sequence[Prediction], folder: Path) -> Mistakes | None:
    """Return the most confident mistakes of one policy, one per picture while there are others.

    Wrong labels come before invalid answers, and those without a known confidence last.
    ``folder`` is what relative picture paths are relative to.
    """
    if not predictions:
        return None
    wrong = sorted((item for item in predictions if not item.is_correct), key=_rank_mistake)
    firsts: dict[tuple[str, ...], Prediction] = {}
    for item in wrong:
        firsts.setdefault(item.pictures or (item.example_id,), item)
    chosen_ids = {item.example_id for item in firsts.values()}
    chosen = [*firsts.values(), *(item for item in wrong if item.example_id not in chosen_ids)]
    return Mistakes(
        policy=predictions[0].policy,
        num_wrong=len(wrong),
        num_items=len(predictions),
        shown=tuple(
            _to_mistake(item, folder) for item in sorted(chosen[:NUM_SHOWN], key=_rank_mistake)
        ),
    )


def _rank_mistake(item: Prediction) -> tuple[bool, bool, float, str]:
    confidence = item.confidence
    return (item.predicted is None, confidence is None, -(confidence or 0.0), item.example_id)


def _to_mistake(item: Prediction, folder: Path) -> Mistake:
    task = item.fields.get("task")
    return Mistake(
        picture=_find_picture(item.pictures, folder),
        task=task if isinstance(task, str) else "",
        label=item.label,
        predicted=item.predicted,
        reason=item.reason,
        text=item.text,
        confidence=item.confidence,
        example_id=item.example_id,
        group=item.group,
    )


def _find_picture(pictures: Sequence[str], folder: Path) -> Path | None:
    if not pictures:
        return None
    return next((p for p in (folder / pictures[0], Path(pictures[0])) if p.is_file()), None)
