import re
import unicodedata
from string import ascii_uppercase

import pytest
from corpora import read_cases
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import ValidationError

from groupwise.core import (
    Completion,
    ConfigError,
    Example,
    Message,
    RewardError,
    Score,
    load_config,
    make_example,
)
from groupwise.rewards import (
    AnswerFormat,
    ChoiceParser,
    LabelMatch,
    LabelParser,
    Parsed,
    read_leniently,
)
from groupwise.rewards import labels as module

CASES = read_cases(__file__)

ENGLISH = LabelParser(labels=("on-task", "off-task"))
CHINESE = LabelParser(labels=("通过", "不通过"))
DESCRIBING = LabelParser(labels=("on-task", "off-task"), describe=("Screen", "Task"))

HYPHENS = "-\u2010\u2011\u2012\u2013\u2212\ufe63\uff0d"
FRAGMENTS = [
    *("on", "off", "task", "On", "TASK", "-", "\u2011", "\u2013", "_", " ", "  ", "\n", "\t"),
    *("on-task", "off-task", "On Task", "off - task", "ontask", "not ", "non", "n't ", "s", "2"),
    *(".", ",", ":", "。", "\uff1a", "%", "**", '"', "(", ")", "/", " or ", " and "),
    *("Classification:", "classification : ", "Confidence:", "confidence: ", "0.8", "80%", "1"),
    *("80 %", "2", "101%", "通过", "不", "不通过", "审核"),
    *("Screen: ", "Task: ", "video", "sheet. "),
]
near_answers = st.tuples(
    st.sampled_from(
        ["", "", "Classification:", "Classification\uff1a ", "分类：", "class: ", "not "]
    ),
    st.sampled_from(["", "", "", "**", '"', '**"', "“", "*", "`"]),
    st.sampled_from(
        [
            *("on-task", "off-task", "ｏff-task", "On\u2010Task", "off  task", "on_task"),
            *("通过", "不通过"),
        ]
    ),
    st.sampled_from(
        ["", "", ".", "\u3002", "\uff0e", "..", "!", "**", '"', '!"**', "”", "on-task"]
    ),
    st.sampled_from(["", " ", "\n", "\r\n ", ", ", "\uff0c", " ,\n", ",,", "\n\n", "\n,"]),
    st.sampled_from(
        ["", "Confidence: ", "置信度：", "CONFIDENCE\uff1a", "confident: ", "Confidence "]
    ),
    st.sampled_from(
        ["", "0.8", ".5", "０．８", "1", "1.1", "80%", "80 \uff05.", "101%", "0.8.", "5.", "x"]
    ),
).map("".join)
mixtures = st.one_of(
    near_answers,
    st.lists(st.sampled_from(FRAGMENTS), max_size=9).map("".join),
    st.lists(st.one_of(st.sampled_from(FRAGMENTS), st.text(max_size=3)), max_size=6).map("".join),
    st.text(),
)


SPACES = " \t\u00a0\u3000"
STOPS = (".", "\u3002", "\uff0e")
ENDS = (*STOPS, "!", "\uff01")
CLOSINGS = "”’」』)）]】"
QUOTES = {q: q for q in "\"'`"} | dict.fromkeys("“‘「『(（[【", CLOSINGS)
COLONS = (":", "\uff1a")
COMMAS = (",", "\uff0c")


NARROW = {0xFF01 + n: 0x21 + n for n in range(94) if chr(0x21 + n).isalnum()}


def read_plainly(text: str) -> str | None:
    """An oracle of another make: it peels the text from both ends, without a grammar."""
    rest = text.strip().translate(NARROW)
    plain = "".join(c.lower() if c.isascii() else c for c in rest)
    start, name = max((plain.rfind(name), name) for name in ("confidence", "置信度"))
    if start >= 0:
        before = peel_gap(rest[:start])
        if before is None or not is_confidence(rest[start + len(name) :]):
            return None
        rest = before
    rest = drop_end(rest)
    return read_label(peel_marks(peel_lead(rest)))


def peel_lead(text: str) -> str:
    """Take off what introduces an answer; without it, or with half of it, nothing."""
    plain = "".join(c.lower() if c.isascii() else c for c in text)
    for lead in ("classification", "分类", "answer", "答案"):
        rest = text[len(lead) :].lstrip(SPACES)
        if plain.startswith(lead) and rest.startswith(COLONS):
            return rest[1:].lstrip()
    says = rf"(?:the[{SPACES}]+)?answer[{SPACES}]+is(?P<space>[{SPACES}]*)|答案[是为]"
    said = re.match(says, plain)
    if not said:
        return text
    rest = text[said.end() :].lstrip(SPACES)
    if rest.startswith(COLONS):
        return rest[1:].lstrip()
    return text if said["space"] == "" else rest


def drop_end(text: str) -> str:
    return text[:-1] if text.endswith(ENDS) else text


def peel_marks(text: str) -> str:
    """Take off stars, then quotation marks, each with an end that stands inside of them."""
    for num_stars in (3, 2, 1):
        stars = "*" * num_stars
        if text.startswith(stars) and text.endswith(stars) and len(text) > 2 * num_stars:
            text = drop_end(text[num_stars:-num_stars])
            break
    is_quoted = len(text) > 2 and text[-1] in QUOTES.get(text[0], "")
    return drop_end(text[1:-1]) if is_quoted else text


def peel_gap(text: str) -> str | None:
    """Take off spaces, one line break and one comma before them, in that order."""
    rest = text.rstrip(SPACES)
    if rest.endswith("\n"):
        rest = rest[:-2] if rest.endswith("\r\n") else rest[:-1]
        rest = rest.rstrip(SPACES)
    if rest.endswith(COMMAS):
        rest = rest[:-1].rstrip(SPACES)
    return rest if rest != text or rest.endswith(STOPS) else None


def is_confidence(tail: str) -> bool:
    tail = tail.lstrip(SPACES)
    if not tail.startswith(COLONS):
        return False
    number = tail[1:].lstrip(SPACES)
    number = number[:-1] if number.endswith(STOPS) else number
    is_percent = number.endswith(("%", "\uff05"))
    number = (number[:-1] if is_percent else number).replace("\uff0e", ".")
    number = number.rstrip(SPACES)
    whole, dot, part = number.partition(".")
    if set(whole + part) - set("0123456789") or not (part if dot else whole):
        return False
    if len(whole) > 3 or len(part) > 9:
        return False
    return float(number) <= (100 if is_percent else 1)


def read_label(text: str) -> str | None:
    if text in {"通过", "不通过"}:
        return text
    for first in ("on", "off"):
        ends = text[: len(first)] + text[-4:]
        joint = text[len(first) : -4]
        bare = joint.strip(SPACES)
        if ends.isascii() and ends.lower() == f"{first}task" and joint and len(bare) <= 1:
            return f"{first}-task" if bare in HYPHENS else None
    return None


@given(mixtures)
@example("ontask")
@example("on_task")
@example("off\u2011task")
@example("on-tas\u212a")
@example("on-ta\u017fk")
@example("on-task on-task")
@example("on-task\n\nConfidence: 1")
@example("on-taskConfidence: 1")
@example("on-task.Confidence: .5")
@example("ｏn-task")
@example("on-task\n置信度：．５")
@example("The answer is (on-task).")
@example("the answer ison-task")
@example("答案是：【off-task】")
@example("Answer on-task")
@example("分类：off-task confidence: 0.5 置信度：1")
def test_nothing_but_exactly_one_english_label_is_a_class(text: str) -> None:
    expected = read_plainly(text)
    expected = expected if expected in ENGLISH.labels else None
    assert ENGLISH.parse(text).label == expected


@given(mixtures)
@example("不通过")
@example("不 通过")
@example("没通过")
@example("通过不通过")
def test_nothing_but_exactly_one_chinese_label_is_a_class(text: str) -> None:
    expected = read_plainly(text)
    assert CHINESE.parse(text).label == (expected if expected in CHINESE.labels else None)


@given(mixtures)
@example("ｏff-task")
def test_a_class_has_one_label_in_the_whole_text_whatever_is_described(text: str) -> None:
    answer = DESCRIBING.parse(text)
    plain = unicodedata.normalize("NFKC", text)
    named = re.findall(r"(?i)(?<![a-z0-9_])(on|off)[\s\u2010-\u2015-]+task(?![a-z0-9_])", plain)
    if answer.label is not None:
        assert [f"{word.lower()}-task" for word in named] == [answer.label]
        assert text.startswith(answer.prefix)


@given(mixtures)
def test_every_answer_is_a_label_or_a_reason(text: str) -> None:
    for parser in (ENGLISH, CHINESE, DESCRIBING):
        answer = parser.parse(text)
        assert (answer.label is None) == bool(answer.reason)
        if answer.label is None:
            assert answer == Parsed(None, answer.reason)
        else:
            assert answer.label in parser.labels
            assert answer.confidence is None or 0 <= answer.confidence <= 1


words = st.text(alphabet="abc xyz0,-视频表", min_size=1, max_size=60).filter(
    lambda said: any(letter.isalnum() for letter in said)
)


@given(words, words, st.sampled_from(DESCRIBING.labels))
def test_what_is_written_is_read_back(screen: str, task: str, label: str) -> None:
    text = DESCRIBING.write(label, (screen, task))
    assert DESCRIBING.parse(text) == Parsed(label, prefix=text[: -len(label)])
    assert DESCRIBING.parse(DESCRIBING.write(label)) == Parsed(label)


@given(words, words, st.sampled_from(DESCRIBING.labels), st.sampled_from(DESCRIBING.labels))
def test_a_label_in_the_description_makes_it_invalid(
    screen: str, task: str, first: str, second: str
) -> None:
    text = f"Screen: {screen[:20]} {first} {screen[20:40]}. Task: {task}. {second}"
    assert DESCRIBING.parse(text).label is None


def test_a_chinese_description_may_not_hold_a_label() -> None:
    parser = LabelParser(labels=("通过", "不通过"), describe=("照片",))
    assert parser.parse("照片:表面光滑。通过").label == "通过"
    assert parser.parse("照片:不通过。通过").label is None
    assert parser.parse("照片:可以通过。不通过").label is None


@pytest.mark.parametrize("key", ["Root cause", "root - cause", "ＲＯＯＴ\u2011cause"])
def test_a_key_of_two_words_has_the_spellings_of_labels(key: str) -> None:
    parser = LabelParser(labels=("on-task", "off-task"), describe=("Root-cause", "Screen"))
    text = parser.write("on-task", ("a video", "a sheet")).replace("Root-cause", key)
    assert parser.parse(text) == Parsed("on-task", prefix=text[: -len("on-task")])


def test_a_parser_in_a_config_is_refused_in_one_sentence() -> None:
    with pytest.raises(ConfigError, match="two labels cannot be told apart"):
        load_config(LabelParser, {"labels": ["on-task", "on task"]})


@pytest.mark.parametrize(
    ("label", "said"), [("maybe", ()), ("on-task", ("a",)), ("on-task", ("a.b", "c"))]
)
def test_what_would_not_be_read_back_is_not_written(label: str, said: tuple[str, ...]) -> None:
    with pytest.raises(RewardError):
        DESCRIBING.write(label, said)


def test_accents_may_be_written_in_two_ways():
    composed, apart = (LabelParser(labels=("x", f"n{e}gative")) for e in ("é", "e\u0301"))
    assert composed.parse("ne\u0301gative").label == "négative"
    assert apart.parse("NÉGATIVE").label is not None


def test_a_letter_among_words_is_no_choice():
    options = ChoiceParser(num_options=4)
    assert read_leniently(options, "A reason is that B") is None
    assert read_leniently(options, "D。\nBecause of a rule") == "D"


def make_item(label: str | None) -> Example:
    return make_example([Message("user", "Is it on-task?")], cluster="g", label=label)


@pytest.mark.parametrize(("text", "label", "value"), CASES["a_parsed_label_is_compared"])
def test_a_parsed_label_is_compared(text: str, label: str, value: float) -> None:
    score = LabelMatch(ENGLISH)(make_item(label), Completion(text))
    assert (score.value, score.invalid) == (value, False)


@pytest.mark.parametrize(
    "text", ["", "on-task off-task", "not on-task", "Is it on-task?", "on-task " * 200]
)
def test_invalid_output_earns_nothing_whatever_the_truth(text: str) -> None:
    expected = Score(0.0, ENGLISH.parse(text).reason, invalid=True)
    for label in ENGLISH.labels:
        assert LabelMatch(ENGLISH)(make_item(label), Completion(text)) == expected


def test_without_a_label_there_is_no_score_and_one_that_no_answer_can_give_is_an_error() -> None:
    assert LabelMatch(ENGLISH)(make_item(None), Completion("on-task")) == Score(None, "no label")
    with pytest.raises(RewardError, match="one of on-task, off-task"):
        LabelMatch(ENGLISH)(make_item("On-Task"), Completion("on-task"))


MANY = LabelParser(labels=tuple(f"item {number:04d}" for number in range(5000)))


@pytest.fixture
def patterns(monkeypatch):
    """Count the patterns that are compiled while a test runs."""
    compiled, real = [], module.re.compile

    def note(*given):
        compiled.append(given)
        return real(*given)

    monkeypatch.setattr(module.re, "compile", note)
    module._compile_answer.cache_clear()
    return compiled


def test_answers_are_read_without_a_pattern_for_each_label(patterns):
    for number in range(0, 5000, 50):
        assert MANY.parse(f"**Item-{number:04d}**.").label == f"item {number:04d}"
        assert MANY.write(f"item {number:04d}") == f"item {number:04d}"
    assert MANY.parse("item 5000").label is None
    assert len(patterns) == 2


def test_what_stands_around_labels_is_explained(patterns):
    found = MANY.parse("It is item 0007 or item 4999")
    assert found.reason == "more than one label: item 0007, item 4999"
    assert MANY.parse("item 0007 it is").reason == "other text around the label item 0007"
    assert MANY.parse("item 77").reason == "no label"


@pytest.mark.parametrize(
    ("labels", "text", "label"),
    [
        (("k", "x"), "\u212a", None),  # the Kelvin sign
        (("ß", "ss"), "SS", "ss"),
        (("ß", "x"), "SS", None),
        (("ı", "x"), "I", "ı"),
        (("i", "x"), "ı", None),
        (("-g", "x"), "– g", "-g"),
        (("a!b", "x"), "“a!b”!", "a!b"),
        (("pass", "pass with notes", "not pass"), "pass", "pass"),
        (("pass", "pass with notes", "not pass"), "Pass with notes.", "pass with notes"),
        (("pass", "pass with notes", "not pass"), "not pass", "not pass"),
        (("pass", "pass with notes", "not pass"), "not pass with notes", None),
    ],
)
def test_spellings_that_look_alike_are_told_apart(labels, text, label):
    assert LabelParser(labels=labels).parse(text).label == label


def test_the_form_is_paid_alone_whether_the_answer_is_right_or_wrong() -> None:
    reward = AnswerFormat(LabelParser(labels=ENGLISH.labels, describe=("Screen",)))
    for text in ("on-task", "off-task", "Screen: video. off-task"):
        score = reward(make_item("on-task"), Completion(text))
        assert (score.value, score.invalid) == (1.0, False)
    for text in ("", "Screen: . on-task", "on-task, off-task", "yes"):
        expected = Score(0.0, reward.parser.parse(text).reason, invalid=True)
        assert reward(make_item("on-task"), Completion(text)) == expected


OPTIONS = ["Paris", "The Hague", "Rome", "北京"]


def make_choice(label: str | None = "B", **fields: object) -> Example:
    return make_example(
        [Message("user", "Which?")], cluster="g", label=label, fields={"options": OPTIONS} | fields
    )


def score(text: str, label: str | None = "B", **fields: object) -> Score:
    return LabelMatch(ChoiceParser())(make_choice(label, **fields), Completion(text))


@pytest.mark.parametrize("text", CASES["the_right_letter_earns_all"])
def test_the_right_letter_earns_all(text: str) -> None:
    assert score(text).value == 1.0
    wrong = score(text, "A")
    assert (wrong.value, wrong.invalid) == (0.0, False)


@pytest.mark.parametrize(("text", "reason"), CASES["anything_else_is_invalid_and_says_why"])
def test_anything_else_is_invalid_and_says_why(text: str, reason: str) -> None:
    for label in "AB":
        assert score(text, label) == Score(0.0, reason, invalid=True)


def test_several_right_options_compare_as_sets() -> None:
    parser, item = ChoiceParser(several=True), make_choice("A, C")
    assert parser.labels == ()
    right, wrong = ("A, C", "c and a", "C、A"), ("A", "A, B, C", "B, D")
    for text in (*right, *wrong):
        assert parser.parse(text).label == parser.parse(text.upper()).label
        assert parser.measure(item, text) == float(text in right)
    for text in ("A, C, A", "a A", "C and C"):
        assert "more than once" in parser.parse(text).reason


def test_the_number_of_options_comes_from_the_example_or_from_the_parser() -> None:
    bare = make_example([Message("user", "?")], cluster="g", label="E")
    five = ChoiceParser(num_options=5)
    assert [five.measure(bare, text) for text in ("E", "F", "E. whatever")] == [1.0, None, None]
    assert score("C", options=["x", "y"]).reason == "C is no option"


def test_the_answer_may_stand_in_a_tag() -> None:
    parser = ChoiceParser(tags=("think", "answer"))
    assert parser.measure(make_choice(), "<think>A?</think><answer>B</answer>") == 1.0
    assert parser.measure(make_choice(), "B") is None


@pytest.mark.parametrize("label", ["E", "Paris", "", "1"])
def test_a_choice_that_no_answer_can_give_is_an_error(label: str) -> None:
    with pytest.raises(RewardError, match=r"no answer can give; .*one of A, B, C, D"):
        score("A", label)


@pytest.mark.parametrize("options", ["AB", ["x"], [1, 2], ["x"] * 27, {}])
def test_options_that_are_none_are_an_error(options: object) -> None:
    with pytest.raises(RewardError, match="not 2 to 26 texts"):
        score("A", options=options)


@pytest.mark.parametrize("num_options", [0, 1, 27])
def test_a_number_of_options_that_cannot_be_is_refused(num_options: int) -> None:
    with pytest.raises(ValidationError, match="num_options"):
        ChoiceParser(num_options=num_options)


letters = st.sampled_from(ascii_uppercase)


@given(st.text(max_size=20) | letters, letters, st.integers(2, 26))
def test_a_text_pays_for_one_label_at_most(text: str, label: str, num_options: int) -> None:
    reward = LabelMatch(ChoiceParser(num_options=num_options))
    possible = ascii_uppercase[:num_options]
    items = [make_example([Message("user", "?")], cluster="g", label=each) for each in possible]
    scores = [reward(item, Completion(text)) for item in items]
    assert sum(score.value or 0 for score in scores) <= 1.0
    assert len({score.invalid for score in scores}) == 1
    if label in possible:
        assert reward(items[possible.index(label)], Completion(label)).value == 1.0


@pytest.mark.parametrize(
    ("text", "label", "prefix"), CASES["the_prefix_is_what_introduces_the_letter"]
)
def test_the_prefix_is_what_introduces_the_letter(text: str, label: str, prefix: str) -> None:
    found = ChoiceParser().parse(text, make_choice())
    assert (found.label, found.prefix) == (label, prefix)


def test_letters_are_written_in_order() -> None:
    parser = ChoiceParser(several=True)
    for target in ("c, A", '["C", "A"]', "A、C", "C A"):
        assert parser.write(target) == "A, C"
    assert ChoiceParser(tags=("answer",)).write("b") == "<answer>B</answer>"
    for wrong in ("E", "Paris", "", "A, C"):
        with pytest.raises(RewardError, match="no answer can be"):
            ChoiceParser().write(wrong)
