"""Rows that no processor takes: each is named, and takes no other row with it."""

from types import SimpleNamespace

import pytest
from corpora import each_row
from PIL import Image

from groupwise.core import Completion, GroupwiseError, Message, make_example, read_picture
from groupwise.inference.local import LocalModel
from groupwise.inference.model import Sampling
from groupwise.models.policy import load_policy
from groupwise.rewards import Parsed
from groupwise.run import asking
from groupwise.serving import try_each

SAMPLING = Sampling(max_new_tokens=2)


@pytest.fixture(scope="module")
def policies(vision_folder, text_folder):
    return {"vision": load_policy(vision_folder), "text": load_policy(text_folder)}


def make_row(folder, text, size, name):
    pictures = []
    if size is not None:
        Image.new("RGB", size, "red").save(folder / f"{name}.png")
        pictures = [read_picture(folder / f"{name}.png")]
    return make_example([Message("user", text)], cluster=name, pictures=pictures, label="yes")


def make_rows(folder, row):
    """Return the odd row of a policy between two others."""
    size = [60, 60] if row["policy"] == "vision" else None
    first, last = (make_row(folder, f"row {name}", size, name) for name in ("first", "last"))
    return [first, make_row(folder, row["text"], row["size"], "odd"), last]


def is_told(row, found):
    """Say whether a row became what it is to become: answered, or a failure with its name."""
    failed = isinstance(found, GroupwiseError)
    return failed if row["expected"] == "failed" else not failed or row["expected"] == "named"


@each_row("odd_rows")
def test_what_becomes_of_an_odd_row(row, policies, tmp_path):
    engine = LocalModel(policies[row["policy"]])
    examples = make_rows(tmp_path, row)
    answered = try_each(lambda some: engine.generate(some, sampling=SAMPLING), examples)
    weighed = try_each(lambda some: engine.label_probabilities(some, labels=("a", "b")), examples)
    for first, odd, last in (answered, weighed):
        assert not isinstance(first, Exception)
        assert not isinstance(last, Exception)
        assert isinstance(odd, GroupwiseError) or not isinstance(odd, Exception), odd
        assert is_told(row, odd)
        if isinstance(odd, Exception):
            assert examples[1].id in str(odd)


@each_row("odd_rows")
def test_an_evaluation_counts_and_names_it(row, policies, tmp_path):
    said = []

    def read_answers(config, run, examples, texts):
        return [Parsed("yes", "") if text else Parsed(None, "no label") for text in texts]

    task = SimpleNamespace(
        things="rows",
        probe=lambda config, ask, examples, texts: [{"p": float(bool(t))} for t in ask(examples)],
        score_answers=lambda config, run, examples, said: [{"s": 1.0} for _ in said],
        read_answers=read_answers,
        parser=lambda config: SimpleNamespace(labels=("yes", "no")),
    )
    config = SimpleNamespace(
        evaluation=SimpleNamespace(batch_size=2, num_latency_items=3),
        grpo=SimpleNamespace(max_new_tokens=2),
    )
    context = SimpleNamespace(config=config, run=tmp_path, say=said.append)
    examples = make_rows(tmp_path, row)
    policy = policies[row["policy"]]
    found = asking.ask_policy(task, policy, examples, context, name="sft")
    assert [one.example_id for one in found] == [one.id for one in examples]
    failed = [one for one in found if one.reason.startswith("could not be asked")]
    assert [one.example_id for one in failed] in ([], [examples[1].id])
    assert is_told(row, GroupwiseError("failed") if failed else Completion(""))
    for one in failed:
        assert (one.predicted, one.text, one.probabilities, one.latency_s) == (None, "", None, None)
        assert any("1 of 3 rows" in line and one.example_id in line for line in said)
    others = [one for one in found if one not in failed]
    assert all(one.probabilities is not None and one.latency_s is not None for one in others)
