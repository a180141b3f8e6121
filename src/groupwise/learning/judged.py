"""Verdicts of a judge against the served answer, as labels that a round may learn from.

Nobody is tested on them: a judge is no person, and may be wrong where people would not be.
"""

from groupwise.feedback import FeedbackItem, GivenLabel, Shown

JUDGE = "judge"
"""In the place of a person; the names of people are digests, so nobody is called that."""


def take_verdict(shown: Shown, least: float) -> FeedbackItem | None:
    """Return an answer with the judge's label; None where it agrees or is not sure.

    Args:
        shown: an answer that nobody spoke of.
        least: probability of its label that a judge must give, in [0, 1].
    """
    label, share = shown.judge_label, shown.judge_probability
    if label is None or share is None or share < least or label == shown.prediction:
        return None
    return FeedbackItem(shown, (GivenLabel(JUDGE, label, shown.at_s),))


def is_judged(item: FeedbackItem) -> bool:
    """Return whether a judge's label stands for those of people."""
    return any(given.person == JUDGE for given in item.labels)
