"""The public suite: 40 faulty rewards of which the audit may miss 2, and 20 sound ones."""

from collections import Counter
from functools import cache

import pytest
from reward_suite import FAULTY, SOUND, Entry, blind_faulty, blind_sound

from groupwise.rewards import audit_rewards

NAMED = {
    "sign_and_point_stripped": "pays-near-number",
    "loose_tolerance": "pays-near-number",
    "sign_ignored": "pays-near-number",
    "zeros_stripped": "pays-near-number",
    "percent_forgiven": "pays-near-number",
    "truncated": "pays-near-number",
    "unicode_minus_lost": "pays-near-number",
    "nan_passes": "pays-near-number",
    "label_prefix": "pays-near-words",
    "alike_is_equal": "pays-near-words",
    "units_ignored": "pays-other-unit",
    "unit_in_unit": "pays-other-unit",
    "label_anywhere": "pays-mention",
    "first_mark_counts": "pays-mention",
    "more_roots_are_free": "pays-several-answers",
    "label_among_values": "pays-several-answers",
    "because_paid": "pays-keyword",
    "yinwei_paid": "pays-keyword",
    "thinking_length_paid": "pays-length",
    "long_thinking_paid": "pays-length",
    "chinese_paid": "pays-language",
    "english_paid": "pays-language",
    "jitter": "not-repeatable",
    "novelty_paid": "not-repeatable",
    "pasted_into_judge": "judge-obeys-injection",
    "judge_failure_is_zero": "judge-failure-scored",
    "failed_judge_left_out": "judge-failure-scored",
}
"""What some are to be called."""


@cache
def find_errors(entry: Entry) -> tuple[str, ...]:
    errors = audit_rewards(entry.build()).errors
    return tuple(finding.name.removeprefix("reward/") for finding in errors)


def test_the_suite_has_40_faulty_and_20_sound_rewards_and_half_of_them_are_blind() -> None:
    assert (len(FAULTY), len(SOUND)) == (40, 20)
    assert (len(blind_faulty.FAULTY), len(blind_sound.SOUND)) == (20, 10)


def test_at_most_two_faulty_rewards_are_missed() -> None:
    missed = [entry.name for entry in FAULTY if not find_errors(entry)]
    assert len(missed) <= 2, missed


def test_no_sound_reward_is_blamed() -> None:
    blamed = {entry.name: find_errors(entry) for entry in SOUND}
    assert {name: errors for name, errors in blamed.items() if errors} == {}


@pytest.mark.parametrize("name", NAMED)
def test_a_fault_is_told_by_its_name(name: str) -> None:
    (entry,) = [entry for entry in FAULTY if entry.name == name]
    assert NAMED[name] in find_errors(entry)


def test_length_is_not_taken_for_language_nor_a_word_for_either() -> None:
    counts = Counter(
        error
        for entry in FAULTY
        if entry.name in ("because_paid", "yinwei_paid", "long_thinking_paid", "english_paid")
        for error in find_errors(entry)
    )
    assert (counts["pays-keyword"], counts["pays-length"], counts["pays-language"]) == (2, 1, 1)
