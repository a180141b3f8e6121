import re
import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from groupwise.core import ConfigError, RewardError, load_config
from groupwise.rewards import ChoiceParser, LabelParser, Parsed, read_leniently

ENGLISH = LabelParser(labels=("on-task", "off-task"))
CHINESE = LabelParser(labels=("通过", "不通过"))
DESCRIBING = LabelParser(labels=("on-task", "off-task"), describe=("Screen", "Task"))

HYPHENS = "-\u2010\u2011\u2012\u2013\u2212\ufe63\uff0d"
FRAGMENTS = [
    *("on", "off", "task", "On", "TASK", "-", "\u2011", "\u2013", "_", " ", "  ", "\n", "\t"),
    *("on-task", "off-task", "On Task", "off - task", "ontask", "not ", "non", "n't ", "s", "2"),
    *(".", ",", ":", "。", "\uff1a", "%", "**", '"', "(", ")", "/", " or ", " and "),
    *("Classification:", "classification : ", "Confidence:", "confidence: ", "0.8", "80%", "1"),
    *(
        "80 %",
        "2",
        "101%",
        "通过",
        "不",
        "不通过",
        "审核",
        "Screen: ",
        "Task: ",
        "video",
        "sheet. ",
    ),
]
near_answers = st.tuples(
    st.sampled_from(
        ["", "", "Classification:", "Classification\uff1a ", "分类：", "class: ", "not "]
    ),
    st.sampled_from(["", "", "", "**", '"', '**"', "“", "*", "`"]),
    st.sampled_from(
        [
            "on-task",
            "off-task",
            "ｏff-task",
            "On\u2010Task",
            "off  task",
            "on_task",
            "通过",
            "不通过",
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


def test_labels_that_start_alike_are_told_apart() -> None:
    parser = LabelParser(labels=("pass", "pass with notes", "not pass"))
    assert parser.parse("pass").label == "pass"
    assert parser.parse("Pass with notes.").label == "pass with notes"
    assert parser.parse("not pass").label == "not pass"
    assert parser.parse("not pass with notes").label is None


def test_a_parser_in_a_config_is_refused_in_one_sentence() -> None:
    with pytest.raises(ConfigError, match="two labels cannot be told apart"):
        load_config(LabelParser, {"labels": ["on-task", "on task"]})


@pytest.mark.parametrize(
    ("label", "said"), [("maybe", ()), ("on-task", ("a",)), ("on-task", ("a.b", "c"))]
)
def test_what_would_not_be_read_back_is_not_written(label: str, said: tuple[str, ...]) -> None:
    with pytest.raises(RewardError):
        DESCRIBING.write(label, said)


SENTIMENT = LabelParser(labels=("positive", "négative"))


def test_accents_may_be_written_in_two_ways():
    assert SENTIMENT.parse("ne\u0301gative").label == "négative"
    assert LabelParser(labels=("positive", "ne\u0301gative")).parse("NÉGATIVE").label is not None


def test_a_letter_among_words_is_no_choice():
    options = ChoiceParser(num_options=4)
    assert read_leniently(options, "A reason is that B") is None
    assert read_leniently(options, "D。\nBecause of a rule") == "D"
