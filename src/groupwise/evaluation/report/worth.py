"""Whether the last policy is shown to be of use, which colours and the last part follow."""

from groupwise.evaluation.measures import ACCURACY
from groupwise.evaluation.page import Statement
from groupwise.evaluation.report.content import Report
from groupwise.evaluation.report.findings import describe_comparison, judge_difference

_DOUBTS = ("run.not_above", "run.constant")


def find_doubt(report: Report) -> Statement | None:
    """Return what speaks against using the last policy; None: nothing does.

    It is not clearly above the best baseline (of which one is the base, prompted, and one the
    majority), it answers everything alike, or what it was trained from is clearly better. Where
    functions measure there are no baselines: it has to be clearly better than that.
    """
    if not report.main:
        return None
    last = list(report.main)[-1]
    headline = report.files.headline
    about = {"policy": last, "split": report.split}
    for one in report.notices:
        if one.kind in _DOUBTS and about.items() <= one.values.items():
            return one
    start = report.files.policies.find(last).trained_from
    for one in report.files.comparisons:
        is_mine = (one.split, one.policy_a, one.policy_b) == (report.split, start, last)
        if is_mine and one.measure == headline.name:
            gain = judge_difference(one, headline)
            if gain < 0 or (gain == 0 and headline is not ACCURACY):
                return describe_comparison(one, headline)
    return None


def is_shown_useful(report: Report) -> bool:
    """Whether the last policy was trained and nothing speaks against it, baselines included."""
    policies = report.files.policies
    is_baseline = [policies.is_baseline(name) for name in report.main]
    is_held = any(is_baseline) or report.files.headline is not ACCURACY
    return is_held and not is_baseline[-1] and find_doubt(report) is None
