"""Findings are counted by their places, of which the first are kept."""

from groupwise.core import MAX_PLACES, report_places


def test_places_are_counted_and_the_first_are_kept():
    places = [f"row {number}" for number in range(MAX_PLACES + 5)]
    (finding,) = report_places("error", "leak", "{count} rows leak.", places)
    assert (finding.message, finding.count) == (f"{MAX_PLACES + 5} rows leak.", MAX_PLACES + 5)
    assert finding.where == tuple(places[:MAX_PLACES])
    assert finding.to_json()["where"] == places[:MAX_PLACES]


def test_nothing_is_found_without_places():
    assert report_places("error", "leak", "{count} rows leak.", []) == []
