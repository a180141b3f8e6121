"""Faulty rewards are found and called by their name, and no sound one is blamed.

A row's witnesses are answers that show what it says, seen without the audit: what each is paid
beside the reference answer (``claim``), and whether the evaluation takes it for right.
"""

from collections.abc import Callable

import pytest
from reward_suite import ENTRIES, FAULTY, SOUND, Entry

from groupwise.core import Completion, Example, Score
from groupwise.rewards import RewardCase, RewardSet
from groupwise.rewards.audit.audit import audit_rewards

Earn = Callable[[str], float]
CLAIMS: dict[str, Callable[[Earn, str, str], bool]] = {
    "earns_as_much": lambda earn, text, gold: earn(text) >= earn(gold),
    "earns_half": lambda earn, text, gold: earn(text) >= earn(gold) / 2 > 0,
    "earns_too_little": lambda earn, text, gold: earn(text) <= 0.5,
    "earns_less": lambda earn, text, gold: earn(text) < earn(gold),
    "earns_all": lambda earn, text, gold: earn(text) == 1.0,
    "earns_by_words": lambda earn, text, gold: earn(text) > 0.3 > earn(r"\boxed{7}"),
    "varies": lambda earn, text, gold: len({earn(text) for _ in range(20)}) > 1,
}
every = pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)


def earn(case: RewardCase, example: Example, text: str) -> float:
    """Return what a text earns; in this suite every text can be scored."""
    completion = Completion(text, token_ids=tuple(range(len(text))))
    score = case.rewards.score if isinstance(case.rewards, RewardSet) else case.rewards
    paid = score(example, completion)
    value = paid.value if isinstance(paid, Score) else paid
    assert value is not None, f"{text!r} cannot be scored"
    return value


def write_golds(case: RewardCase) -> list[str]:
    return [case.write(example, str(example.label)) for example in case.examples]


@every
def test_the_audit_says_what_the_corpus_says(entry: Entry) -> None:
    errors = {f.name.removeprefix("reward/") for f in audit_rewards(entry.build()).errors}
    assert bool(errors) == (entry.row["expected"] == "faulty"), (errors, entry.row["why"])
    assert {entry.row.get("finding")} - {None} <= errors


@every
def test_witnesses_show_it(entry: Entry) -> None:
    case = entry.build()
    golds = write_golds(case)
    assert len({example.id for example in case.examples}) == len(case.examples) >= 12
    for example, gold in zip(case.examples, golds, strict=True):
        assert case.parser.measure(example, gold) == 1.0
        wrong = [label for label in case.parser.labels or () if label != example.label]
        assert not any(case.parser.measure(example, case.write(example, w)) for w in wrong)
    assert entry.row["witnesses"]
    for witness in entry.row["witnesses"]:
        example, text = case.examples[witness["example"]], witness["text"]
        assert (case.parser.measure(example, text) == 1.0) is witness["is_right"], witness
        claim = CLAIMS[witness["claim"]]
        assert claim(lambda t, e=example: earn(case, e, t), text, golds[witness["example"]]), text


@pytest.mark.parametrize("entry", SOUND, ids=lambda entry: entry.name)
def test_a_sound_reward_pays_what_is_right(entry: Entry) -> None:
    case = entry.build()
    golds = write_golds(case)
    junk = ["", "?", "I do not know.", "不知道", " ".join(case.parser.labels), " ".join(golds)]
    for example, gold in zip(case.examples, golds, strict=True):
        assert earn(case, example, gold) == 1.0
        for text in [*golds, *junk]:
            measured = case.parser.measure(example, text) or 0.0
            paid = earn(case, example, text)
            if measured == 1.0:
                assert paid >= 0.8, (example.prompt, text)
            else:
                assert paid <= measured + 0.2, (example.prompt, text)


def test_half_of_the_suite_is_blind_and_no_error_is_taken_for_another() -> None:
    assert (len({entry.name for entry in ENTRIES}), len(FAULTY), len(SOUND)) == (60, 40, 20)
    assert sum(entry.row["is_blind"] for entry in ENTRIES) == 30
    told = ("pays-keyword", "pays-length", "pays-language")
    names = ("because_paid", "yinwei_paid", "long_thinking_paid", "english_paid")
    for entry in (entry for entry in FAULTY if entry.name in names):
        errors = {f.name.removeprefix("reward/") for f in audit_rewards(entry.build()).errors}
        assert errors & set(told) == {entry.row["finding"]}
