import pytest

from groupwise.core import DataError, Message, Picture, make_example
from groupwise.data import PUBLISHED_VQA, FewShotForm


def make_item(name, *, label="net", question="What is it? "):
    return make_example(
        [Message("user", "What is it?")],
        cluster=name,
        pictures=[Picture(name, name)],
        label=label,
        fields={"question": question},
    )


def test_the_published_form_alternates_pictures_and_texts_in_one_turn():
    asked, first, last = make_item("q"), make_item("a"), make_item("b", label="mesh")
    (turn,) = PUBLISHED_VQA.write(asked, [first, last])
    pictures = [Picture(name, name) for name in "abq"]
    assert turn == Message(
        "user",
        [
            pictures[0],
            "Question:What is it? Short answer:net",
            pictures[1],
            "Question:What is it? Short answer:mesh",
            pictures[2],
            "Question:What is it? Short answer:",
        ],
    )
    assert PUBLISHED_VQA.write(asked, [last, first]) != (turn,), "their order counts"


def test_a_form_of_ones_own():
    form = FewShotForm("Q: {question}\nA:", before_answer=" ", between="\n\n", system="Be short.")
    system, turn = form.write(make_item("q", label=None), [make_item("a")])
    assert (system.role, system.text) == ("system", "Be short.")
    assert [part for part in turn.parts if isinstance(part, str)] == [
        "Q: What is it?\nA: net\n\n",
        "Q: What is it?\nA:",
    ]


def test_a_form_says_where_pictures_stand():
    form = FewShotForm("{question}{pictures}: ", between="; ")
    (turn,) = form.write(make_item("q", question="Which {pictures}?"), [make_item("a")])
    assert turn.parts == (
        "What is it?",
        Picture("a", "a"),
        ": net; Which {pictures}?",
        Picture("q", "q"),
        ": ",
    )


def test_what_cannot_be_shown_is_named():
    with pytest.raises(DataError, match="has no label"):
        PUBLISHED_VQA.write(make_item("q"), [make_item("a", label=None)])
    with pytest.raises(DataError, match="has no field question"):
        PUBLISHED_VQA.write(make_item("q", question=None), [])
    with pytest.raises(DataError, match=r"no \{question\}"):
        FewShotForm("Question: Short answer:")
