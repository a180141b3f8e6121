import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from groupwise.core import JudgeError
from groupwise.judges.prompt import read_tag

LABELS = ("True", "False")
OPEN, CLOSE = "<true_false>", "</true_false>"


@pytest.mark.parametrize(
    ("text", "label"),
    [
        (f"<analysis>equal</analysis>{OPEN}True{CLOSE}", "True"),
        (f"{OPEN}\n False \n{CLOSE}\n", "False"),
        (f"True or False? {OPEN}False{CLOSE}", "False"),
        ("True", None),
        ("", None),
        (f"{OPEN}True", None),
        (f"True{CLOSE}", None),
        (f"{CLOSE}True{OPEN}", None),
        (f"{OPEN}{CLOSE}", None),
        (f"{OPEN}true{CLOSE}", None),
        (f"{OPEN}True|False{CLOSE}", None),
        (f"{OPEN}not True{CLOSE}", None),
        (f"{OPEN}<b>True</b>{CLOSE}", None),
        (f"{OPEN}True{CLOSE}{OPEN}False{CLOSE}", None),
        (f"{OPEN}True{CLOSE}{OPEN}True{CLOSE}", None),
        (f"{OPEN}{OPEN}True{CLOSE}{CLOSE}", None),
        (f"{OPEN}True{CLOSE} <true_fal", "True"),
        (f"{OPEN}True{CLOSE} <true_false", None),
        (f"{OPEN}True{CLOSE} < / True_False", None),
        (f"<TRUE_FALSE>False</TRUE_FALSE>{OPEN}True{CLOSE}", None),
        ("<TRUE_FALSE>True</TRUE_FALSE>", None),
        (f"{OPEN}True{CLOSE}<true_falsehood>", None),
        (f"{OPEN}真{CLOSE}", None),
    ],
)
def test_only_one_whole_pair_around_a_label_is_a_verdict(text, label):
    assert read_tag(text, "true_false", LABELS) == label


PIECES = st.lists(
    st.sampled_from([OPEN, CLOSE, "True", "False", "<", "/", "true_false", ">", " ", "\n"])
    | st.text(max_size=3),
    max_size=8,
).map("".join)


@given(st.binary().map(lambda body: body.decode("utf-8", "replace")) | PIECES)
@example(f"{OPEN}True{CLOSE}")
def test_a_verdict_is_never_invented(text):
    """Told apart in another way: by cutting the text at everything that looks like the tag."""
    parts = re.split(r"(?i)<\s*/?\s*true_false", text)
    is_pair = len(parts) == 3 and text.count(OPEN) == 1 and text.count(CLOSE) == 1
    between = text.partition(OPEN)[2].partition(CLOSE)[0].strip() if is_pair else None
    in_order = text.find(OPEN) < text.find(CLOSE)
    expected = between if is_pair and in_order and between in LABELS else None
    assert read_tag(text, "true_false", LABELS) == expected


def test_a_tag_is_a_plain_word():
    with pytest.raises(JudgeError, match="tag"):
        read_tag("", "a.*", LABELS)
