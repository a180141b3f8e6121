"""The review page: people are asked about answers that nobody spoke of, at ``/review``."""

from groupwise.serving.review.application import make_review

__all__ = ["make_review"]
