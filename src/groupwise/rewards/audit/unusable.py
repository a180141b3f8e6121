"""Examples that no answer can be scored on: their reference or their tests cannot be used."""

from collections import Counter

from groupwise.core import Example
from groupwise.rewards.audit.case import RewardCase
from groupwise.rewards.audit.rows import AuditRow, Evidence, Rule
from groupwise.rewards.reward import explain_unusable

UNUSABLE = Rule(
    "reward/unusable-example",
    "error",
    "every example",
    "must have a reference that answers can be compared with; fix the data or leave it out",
)


def check_usable(case: RewardCase) -> tuple[AuditRow, list[Example]]:
    """Ask the rewards about every example, not only the sample.

    Returns:
        The row, whose evidence has the first example of each reason in front, and the examples
        that can be used.
    """
    asked = [(example, explain_unusable(case.rewards, example)) for example in case.examples]
    found = [(example, why) for example, why in asked if why]
    counts = Counter(why for _, why in found)
    order = {why: place for place, (why, _) in enumerate(counts.most_common())}
    firsts = {why: example for example, why in reversed(found)}
    found.sort(key=lambda pair: (firsts[pair[1]] is not pair[0], order[pair[1]]))
    failures = [
        Evidence(
            example.id,
            example.label,
            "any answer",
            None,
            f"{why} ({counts[why]} of {len(asked)} examples)",
        )
        for example, why in found
    ]
    row = UNUSABLE.make_row([], failures, num_tried=len(asked))
    return row, [example for example, why in asked if not why]
