import json

import pytest
from PIL import Image
from real_data import find_real

from groupwise.core import (
    Completion,
    DataError,
    Message,
    Picture,
    make_example,
    write_json,
)
from groupwise.rewards import VqaAccuracy
from groupwise_recipes.demo_selection.vqa import (
    PUBLISHED_VQA,
    FewShotForm,
    digest_vqa_pictures,
    load_vqa,
    make_vqa_example,
    measure_agreement,
)

SUBSET = "val2014"


def name_picture(number):
    return f"COCO_{SUBSET}_{number:012d}.jpg"


def ask(number, image=7, question="What is it?"):
    return {"question_id": number, "image_id": image, "question": question}


def tell(number, answers=("net", "net", "mesh"), **more):
    rows = [
        {"answer": text, "raw_answer": f"{text}s", "answer_confidence": "yes", "answer_id": n}
        for n, text in enumerate(answers, start=1)
    ]
    return {"question_id": number, "answers": rows, "question_type": "what", **more}


def load(folder, asked, told, *, subset=SUBSET):
    header = {"info": {"version": "2.0"}, "license": {}, "data_subtype": SUBSET}
    write_json(folder / "questions.json", {**header, "questions": asked})
    header["data_subtype"] = subset
    write_json(folder / "annotations.json", {**header, "annotations": told})
    return load_vqa(
        folder / "questions.json", annotations=folder / "annotations.json", pictures=folder
    )


@pytest.fixture
def folder(tmp_path):
    Image.new("RGB", (4, 4), "red").save(tmp_path / name_picture(7))
    return tmp_path


def test_rows_have_the_answers_in_the_order_of_their_ids(folder):
    told = tell(70, image_id=7)
    told["answers"].reverse()
    found = load(folder, [ask(70)], [told])
    (row,) = found.rows
    assert (row.question_id, row.image_id, row.question) == (70, 7, "What is it?")
    assert row.path == folder / "COCO_val2014_000000000007.jpg"
    assert row.answers == ("net", "net", "mesh")
    assert (found.num_rows, found.drops.total, found.subset) == (1, 0, SUBSET)


def test_the_most_frequent_answer_is_the_label(folder):
    answers = {1: ("mesh", "net", "net "), 2: ("b", "a"), 3: (" ", "", "", "net")}
    found = load(folder, [ask(n) for n in answers], [tell(n, a) for n, a in answers.items()])
    assert [row.answer for row in found.rows] == ["net", "b", "net"]


def test_pictures_may_stand_in_a_folder_of_their_subset(folder):
    (folder / SUBSET).mkdir()
    name = name_picture(7)
    (folder / name).rename(folder / SUBSET / name)
    assert load(folder, [ask(1)], [tell(1)]).rows[0].path == folder / SUBSET / name


def test_every_row_that_is_not_used_is_counted(folder):
    twice = tell(4)
    twice["answers"][0]["answer_id"] = 2
    asked = [ask(1), ask(1), ask(2, image=8), ask(3, question=" "), ask(4), ask(5), ask(6), ask(7)]
    told = [tell(1), tell(1), tell(2), tell(3), twice, tell(5, ["a"]), tell(6, ["", " "])]
    found = load(folder, [*asked, ask(8)], [*told, tell(8, image_id=8), tell(9)])
    assert found.drops.counts == {
        "annotation without a question of its own": 2,
        "all answers are empty": 1,
        "an answer id appears twice": 1,
        "empty question": 1,
        "fewer than 2 answers": 1,
        "missing picture": 1,
        "no annotation": 1,
        "question and annotation name different pictures": 1,
        "repeated question": 1,
    }
    assert [row.question_id for row in found.rows] == [1]
    assert found.num_rows == 9 + 2 == len(found.rows) + found.drops.total


@pytest.mark.parametrize(
    ("asked", "told", "words"),
    [
        ([{"question_id": 1}], [], "questions.0.image_id: Field required"),
        ([ask("x")], [], "questions.0.question_id"),
        ([ask(1)], [{"question_id": 1}], "annotations.0.answers"),
        ([ask(1)], [tell(2)], "no question that can be used"),
    ],
)
def test_what_is_not_vqas_file_is_named(folder, asked, told, words):
    with pytest.raises(DataError) as caught:
        load(folder, asked, told)
    assert words in str(caught.value)


def test_files_of_two_subsets_are_refused(folder):
    with pytest.raises(DataError, match=r"different subsets; got val2014 in .*, train2014 in"):
        load(folder, [ask(1)], [tell(1)], subset="train2014")
    with pytest.raises(DataError, match="cannot read"):
        load_vqa(folder / "none.json", annotations=folder / "none.json", pictures=folder)


def test_an_example_asks_in_the_published_form(folder):
    (row,) = load(folder, [ask(70)], [tell(70, ["net"] * 9 + ["mesh"])]).rows
    example = make_vqa_example(row)
    (turn,) = example.prompt
    assert turn.text == "Question:What is it? Short answer:"
    assert [picture.path for picture in example.pictures] == [row.path]
    assert (example.label, example.cluster) == ("net", "7")
    assert example.fields["question_id"] == 70
    assert VqaAccuracy()(example, Completion("mesh")).value == 0.3


def test_how_well_the_annotators_agree(folder):
    answers = [["net"] * 10, ["a", "b", "c"]]
    found = load(folder, [ask(1), ask(2)], [tell(1, answers[0]), tell(2, answers[1])])
    assert measure_agreement(found.rows) == 0.5
    with pytest.raises(DataError, match="no questions"):
        measure_agreement([])


def test_three_real_questions():
    real = find_real("vqav2_three")
    annotations, pictures = real / "annotations.json", real / "images"
    found = load_vqa(real / "questions.json", annotations=annotations, pictures=pictures)
    assert (found.num_rows, found.drops.total, found.subset) == (3, 0, "train2014")
    assert [row.question_id for row in found.rows] == [458752000, 458752001, 458752002]
    assert [row.answer for row in found.rows] == ["net", "pitcher", "orange"]
    assert measure_agreement(found.rows) == pytest.approx((0.6 + 0.9 + 1.0) / 3)
    examples = [make_vqa_example(row) for row in found.rows]
    assert {example.cluster for example in examples} == {"458752"}
    said = [("net", 1.0), ("Netting.", 0.3), ("catcher", 0.3), ("orange", 1.0), ("blue", 0.0)]
    place = [0, 0, 1, 2, 2]
    for (text, accuracy), where in zip(said, place, strict=True):
        assert VqaAccuracy()(examples[where], Completion(text)).value == accuracy
    assert json.dumps(dict(examples[0].fields))


def test_the_digest_of_pictures_is_of_those_that_are_asked_about(folder):
    load(folder, [ask(70), ask(71)], [tell(70), tell(71)])
    before = digest_vqa_pictures(folder / "questions.json", pictures=folder)
    Image.new("RGB", (4, 4), "green").save(folder / name_picture(8))
    assert digest_vqa_pictures(folder / "questions.json", pictures=folder) == before
    moved = folder / SUBSET / name_picture(7)
    moved.parent.mkdir()
    (folder / name_picture(7)).rename(moved)
    assert digest_vqa_pictures(folder / "questions.json", pictures=folder) == before
    Image.new("RGB", (4, 4), "green").save(moved)
    changed = digest_vqa_pictures(folder / "questions.json", pictures=folder)
    moved.unlink()
    assert (
        len({before, changed, digest_vqa_pictures(folder / "questions.json", pictures=folder)}) == 3
    )


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
