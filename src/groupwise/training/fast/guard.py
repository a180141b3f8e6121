"""The first batch of each new shape is compared with the plain pass."""

from collections.abc import Callable, Hashable

import torch


class ShapeGuard:
    """Remembers which shapes of batches were compared.

    Args:
        tolerance: greatest difference of a log-probability that is accepted.
    """

    def __init__(self, tolerance: float) -> None:
        self.tolerance = tolerance
        self.compared: set[Hashable] = set()

    def find_difference(
        self, shape: Hashable, fast: torch.Tensor, compute_plain: Callable[[], torch.Tensor]
    ) -> float | None:
        """Return the greatest difference if it is too large, else None.

        Args:
            shape: of the batch; one that was compared before is not compared again.
            fast: log-probabilities of real tokens, shape [tokens]; without any there is nothing
                to compare.
            compute_plain: the same from the plain pass.
        """
        if shape in self.compared or not len(fast):
            return None
        self.compared.add(shape)
        with torch.no_grad():
            difference = float((fast.detach() - compute_plain()).abs().max())
        return None if difference <= self.tolerance else difference
