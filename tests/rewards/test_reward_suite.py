"""Every entry of the reward suite is what it says, seen without the audit."""

from functools import partial

import pytest
from reward_suite import FAULTY, SOUND, Entry, earn, write_gold

every = pytest.mark.parametrize("entry", [*FAULTY, *SOUND], ids=lambda entry: entry.name)


def test_names_are_unique() -> None:
    names = [entry.name for entry in (*FAULTY, *SOUND)]
    assert len(set(names)) == len(names)


@every
def test_the_evaluation_knows_the_reference_answers(entry: Entry) -> None:
    case = entry.build()
    assert len(case.examples) >= 12
    assert len({example.id for example in case.examples}) == len(case.examples)
    for index, example in enumerate(case.examples):
        assert case.parser.measure(example, write_gold(case, index)) == 1.0
        if case.parser.labels:
            wrong = [label for label in case.parser.labels if label != example.label]
            assert not any(case.parser.measure(example, case.write(example, w)) for w in wrong)


@every
def test_witnesses_show_it(entry: Entry) -> None:
    case = entry.build()
    assert entry.witnesses
    for witness in entry.witnesses:
        example = case.examples[witness.index]
        assert (case.parser.measure(example, witness.text) == 1.0) is witness.is_right, witness
        pay = partial(earn, case, example)
        assert witness.claim(pay, witness.text, write_gold(case, witness.index)), witness


@pytest.mark.parametrize("entry", SOUND, ids=lambda entry: entry.name)
def test_a_sound_reward_pays_what_is_right(entry: Entry) -> None:
    case = entry.build()
    golds = [write_gold(case, index) for index in range(len(case.examples))]
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
