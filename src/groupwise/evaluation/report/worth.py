"""Whether the last policy is shown to be of use, which colours and the last part follow."""

from groupwise.evaluation.page import Statement
from groupwise.evaluation.predictions import ACCURACY
from groupwise.evaluation.report.content import Report
from groupwise.evaluation.report.findings import describe_comparison, judge_difference

_DOUBTS = ("run.not_above", "run.constant")


def find_doubt(report: Report) -> Statement | None:
    """Return what speaks against using the last policy; None: nothing does.

    It is not clearly above the best baseline (of which one is the majority), it answers everything
    alike, it is not clearly better than the base before any training, or a policy that it was
    trained from is clearly better.
    """
    if not report.main:
        return None
    last = list(report.main)[-1]
    headline = report.files.headline
    about = {"policy": last, "split": report.split}
    for one in report.notices:
        if one.kind in _DOUBTS and about.items() <= one.values.items():
            return one
    before = {one.name: one.kind for one in report.files.policies.list_ancestors(last)[:-1]}
    for one in report.files.comparisons:
        is_mine = one.measure == headline.name and (one.split, one.policy_b) == (report.split, last)
        if is_mine and one.policy_a in before:
            gain = judge_difference(one, headline)
            if gain < 0 or (gain == 0 and before[one.policy_a] == "prompted"):
                return describe_comparison(one, headline)
    return None


def is_shown_useful(report: Report) -> bool:
    """Whether the last policy was trained and nothing speaks against it, baselines included.

    A policy that does nothing but harm by one of its measures (100 % missed defects, a headline
    at its worst) is not, whatever else it does.
    """
    policies = report.files.policies
    is_baseline = [policies.is_baseline(name) for name in report.main]
    is_held = any(is_baseline) or report.files.headline is not ACCURACY
    is_useful = is_held and not is_baseline[-1] and find_doubt(report) is None
    return is_useful and not _is_worst(report)


def _is_worst(report: Report) -> bool:
    found = report.main[list(report.main)[-1]]
    harms = [name for name in found if not report.files.define(name).is_higher_better]
    shares = [name for name in harms if not name.startswith("latency")]
    headline = report.files.headline
    worst = found[headline.name].value == (0.0 if headline.is_higher_better else 1.0)
    return worst or any(found[name].value >= 1.0 for name in shares)
