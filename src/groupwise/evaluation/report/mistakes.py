"""Ten mistakes worth looking at: the wrong answers a policy was most sure of.

Chooses items and finds their pictures; nothing is drawn here.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from groupwise.evaluation.predictions import Prediction
from groupwise.evaluation.report.items import find_picture

NUM_SHOWN = 10


@dataclass(frozen=True, slots=True)
class Mistakes:
    """Mistakes of one policy, the most confident first, and how many there are in all.

    Attributes:
        policy: whose they are.
        num_wrong: all of them.
        num_items: all items, right or wrong.
        shown: the chosen ones.
        pictures: the first picture of each; None where it is not there any more.
    """

    policy: str
    num_wrong: int
    num_items: int
    shown: tuple[Prediction, ...]
    pictures: tuple[Path | None, ...]


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
    shown = tuple(sorted(chosen[:NUM_SHOWN], key=_rank_mistake))
    return Mistakes(
        policy=predictions[0].policy,
        num_wrong=len(wrong),
        num_items=len(predictions),
        shown=shown,
        pictures=tuple(find_picture(item.pictures, folder) for item in shown),
    )


def _rank_mistake(item: Prediction) -> tuple[bool, bool, float, str]:
    confidence = item.confidence
    return (item.predicted is None, confidence is None, -(confidence or 0.0), item.example_id)
