"""A rival of the selector: one logistic regression over the items of recorded lists.

It sees what the selector is trained on, without the order of lists and what stands beside an item.
"""

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression

from groupwise.core import read_json, write_json
from groupwise_recipes.demo_selection.asking import List
from groupwise_recipes.demo_selection.choosing import PooledQueries, choose_highest
from groupwise_recipes.demo_selection.recorded_groups import RecordedGroups

POINTWISE = "pointwise"
_C = 0.01
"""Of 0.0001, 0.001 and 0.01 it chose best for the validation queries of the demo's seeds 0 and 1,
mean over shots and over both orders of the lists."""
_MAX_STEPS = 500


def fit_pointwise(recorded: Iterable[RecordedGroups]) -> torch.Tensor:
    """Return a weight for each feature, shape [d].

    Each item of a list is a row: the products of its features and the query's, standardised. It
    counts as right as far as its list earned the greatest reward.
    """
    products, shares = zip(*map(_list_items, recorded), strict=True)
    rows, share = np.concatenate(products), np.concatenate(shares)
    spread = rows.std(axis=0)
    scale = np.where(spread > 0, spread, 1)
    rows = (rows - rows.mean(axis=0)) / scale
    right, wrong = share > 0, share < 1
    model = LogisticRegression(C=_C, max_iter=_MAX_STEPS).fit(
        np.concatenate([rows[right], rows[wrong]]),
        np.repeat([True, False], [right.sum(), wrong.sum()]),
        np.concatenate([share[right], 1 - share[wrong]]),
    )
    return torch.from_numpy(model.coef_[0] / scale).float()


def _list_items(groups: RecordedGroups) -> tuple[np.ndarray, np.ndarray]:
    """Return products of features [items, d], and the share of the reward that each list earned."""
    query, place = groups.present.nonzero(as_tuple=True)
    lists = groups.lists[query, place]
    products = groups.queries[query].unsqueeze(1) * groups.pools[query.unsqueeze(1), lists]
    shares = (groups.rewards[query, place] / groups.max_reward).repeat_interleave(lists.shape[1])
    return products.flatten(0, 1).double().numpy(), shares.double().numpy()


def choose_by_pointwise(
    weights: torch.Tensor, asked: PooledQueries, *, num_shots: int
) -> list[List]:
    """Return for each query the candidates of its pool that score highest, the best first.

    Args:
        weights: of features, shape [d].
        asked: queries and their pools.
        num_shots: demonstrations of a list.
    """
    scores = (asked.features.joined * weights) @ asked.train.joined.mT
    return choose_highest(scores.gather(1, asked.members), asked, num_shots=num_shots)


def write_pointwise(weights: torch.Tensor, folder: Path) -> None:
    """Write the weights into a folder."""
    write_json(folder / "weights.json", weights.tolist())


def read_pointwise(folder: Path) -> torch.Tensor:
    """Return what ``write_pointwise`` wrote."""
    return torch.tensor(read_json(folder / "weights.json", list))
