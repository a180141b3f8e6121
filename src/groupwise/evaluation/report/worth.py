"""Whether the last policy is shown to be of use, which colours and the last part follow."""

from groupwise.evaluation.page import Statement
from groupwise.evaluation.report.content import Report
from groupwise.evaluation.report.findings import describe_comparison, judge_difference

_DOUBTS = ("run.not_above", "run.constant")


def find_doubt(report: Report) -> Statement | None:
    """Return what speaks against using the last policy; None: nothing does.

    It is not clearly above the best baseline (of which one is the base, prompted, and one the
    majority), it answers everything alike, or what it was trained from is clearly better.
    """
    if not report.main:
        return None
    last = list(report.main)[-1]
    about = {"policy": last, "split": report.split}
    for one in report.notices:
        if one.kind in _DOUBTS and about.items() <= one.values.items():
            return one
    start = report.files.policies.find(last).trained_from
    for one in report.files.comparisons:
        is_mine = (one.split, one.policy_a, one.policy_b) == (report.split, start, last)
        if is_mine and one.measure == "accuracy" and judge_difference(one) < 0:
            return describe_comparison(one)
    return None


def is_shown_useful(report: Report) -> bool:
    """Whether the last policy was trained and is clearly above every baseline of its items."""
    policies = report.files.policies
    is_baseline = [policies.is_baseline(name) for name in report.main]
    return any(is_baseline) and not is_baseline[-1] and find_doubt(report) is None
