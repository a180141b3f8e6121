"""Leases: one answer a person, for a while, and never more people than are allowed."""

from hypothesis import given
from hypothesis import strategies as st

from groupwise.serving.review.leases import Leases

STEPS = st.lists(
    st.tuples(st.sampled_from("abcd"), st.sampled_from(["take", "end", "wait"]), st.integers(0, 4)),
    max_size=40,
)


@given(STEPS)
def test_leases_are_those_of_the_last_seconds_and_never_too_many(steps):
    now, expected = 0.0, dict[str, tuple[str, float]]()
    leases = Leases(3.0, clock=lambda: now, max_people=2)
    for person, what, number in steps:
        if what == "wait":
            now += number
        expected.pop(person, None) if what != "wait" else None
        if what == "take":
            leases.take(str(number), person)
            expected[person] = (str(number), now + 3.0)
        elif what == "end":
            leases.end(person)
        expected = {one: lease for one, lease in expected.items() if lease[1] > now}
        if len(expected) > 2:
            del expected[next(iter(expected))]
        for one in "abcd":
            assert leases.find(one) == expected.get(one, (None,))[0]
            others = {answer for other, (answer, _) in expected.items() if other != one}
            assert leases.list_others(one) == others
