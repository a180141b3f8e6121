"""The review page: people are asked about answers that nobody spoke of, at ``/review``."""

from groupwise.serving.review.application import make_review
from groupwise.serving.review.rounds import (
    ShownCandidate,
    ShownChange,
    ShownLook,
    ShownRounds,
)

__all__ = ["ShownCandidate", "ShownChange", "ShownLook", "ShownRounds", "make_review"]
