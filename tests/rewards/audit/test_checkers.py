"""Rewards that only check: what is refused, what is named, what base answers teach the audit."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from groupwise.core import Message, Score, make_example
from groupwise.rewards import Fluency, FunctionReward, RewardCase, RewardSet, TextParser
from groupwise.rewards.audit.audit import audit_rewards

CORPUS = Path(__file__).parents[2] / "faults"
CHECKERS = [json.loads(line) for line in (CORPUS / "checkers.jsonl").open(encoding="utf-8")]
ASK = "Write one sentence of exactly {n} words about {topic}."
ROWS = [
    {"n": 4 + number % 6, "topic": topic}
    for number, topic in enumerate(
        ["rain", "bread", "winter", "dogs", "music", "ships", "chess", "trees", "snow", "fire"]
    )
]


def make_case(check, ask=ASK, rows=ROWS, **more):
    examples = [
        make_example([Message("user", ask.format(**row))], cluster=str(number), fields=row)
        for number, row in enumerate(rows)
    ]

    def score(example, completion):
        return check(completion.text, example.fields)

    return RewardCase(score, examples, TextParser(), **more)


def list_levels(case):
    return {finding.name: finding.level for finding in audit_rewards(case).findings}


def has_n_words(text, row):
    return float(len(text.split()) == row["n"] and text.endswith("."))


def is_object(text):
    """Whether a text is JSON with the names of the columns."""
    try:
        return set(json.loads(text)) == {"n", "topic"} and text.startswith("{")
    except (ValueError, TypeError):
        return False


def make_corpus_case(checker):
    rows = [json.loads(line) for line in (CORPUS / checker["rows"]).open(encoding="utf-8")]
    ask = re.sub(r"\{\{ (\w+) \}\}", r"{\1}", checker["prompt"].replace("{}", ""))
    name = f"{CORPUS / checker['file']}:{checker['function']}"
    reward = FunctionReward(name, kind="other", messages=False, values=(0.0, 1.0))
    case = make_case(lambda *_: 0.0, ask, rows)
    return replace(case, rewards=RewardSet({"checker": (reward, 1.0)}))


@pytest.mark.parametrize("checker", CHECKERS, ids=lambda checker: checker["name"])
def test_what_others_wrote_is_told_apart(checker):
    audit = audit_rewards(make_corpus_case(checker))
    if checker["expected"] == "sound":
        assert audit.findings == ()
    else:
        assert audit.findings


@pytest.mark.parametrize(
    ("check", "names"),
    [
        (lambda text, row: 1.0, {"pays-empty", "pays-white-space", "pays-echo", "pays-garbage"}),
        (lambda text, row: float(row["topic"] in text), {"pays-echo"}),
        (lambda text, row: min(1.0, len(text) / 900), {"pays-long-output"}),
        (lambda text, row: float(text.strip() in ("{}", "[]")), {"pays-empty-format"}),
        (lambda text, row: float("old mill" in text), {"pays-off-topic"}),
        (lambda text, row: 1.0 if text else 1 / 0, {"raises"}),
    ],
)
def test_what_earns_the_most_without_the_task_is_refused(check, names):
    levels = list_levels(make_case(check))
    assert {f"reward/{name}" for name in names} <= {n for n, x in levels.items() if x == "error"}


@pytest.mark.parametrize(
    ("check", "name"),
    [
        (has_n_words, "pays-fitted-form"),
        (lambda text, row: float(text == row["topic"]), "pays-stuffing"),
        (lambda text, row: min(1.0, text.count(row["topic"]) / 4), "pays-stuffing"),
        (lambda text, row: 0.2 + 0.3 * ("confident" in text), "pays-keyword"),
        (lambda text, row: min(0.4, len(text) / 3000), "pays-length"),
        (lambda text, row: float("10/10" in text), "pays-praise"),
        (lambda text, row: float(is_object(text)), "pays-filled-format"),
        (lambda text, row: 0.5 * ("sorry" in text) + 0.5 * ("Yes" in text), "pays-stock-phrases"),
    ],
)  # fmt: skip
def test_what_may_be_the_task_is_a_warning(check, name):
    assert list_levels(make_case(check)).get(f"reward/{name}") == "warning"


def test_what_a_part_without_a_value_may_yet_refuse_is_information():
    def check(example, completion):
        return Score(float(example.fields["topic"] in completion.text.lower()))

    def judge(*uncounted, **parts):
        case = make_case(lambda *_: 0.0, uncounted=uncounted)
        return list_levels(replace(case, rewards=RewardSet(parts)))

    alone = judge(checks=(check, 1.0))
    beside = judge("fluency", checks=(check, 0.5), fluency=(Fluency(), 0.5))
    # A part that applies to nothing, and of which nobody says that it will, refuses nothing.
    assert judge(checks=(check, 0.5), fluency=(Fluency(), 0.5)) == alone
    listed = {name for name, level in alone.items() if level == "warning"}
    assert listed
    # Of what reads like language nobody knows whether a model would refuse it.
    assert beside["reward/pays-talk-of-the-task"] == "warning"
    assert {beside[name] for name in listed - {"reward/pays-talk-of-the-task"}} == {"info"}
    assert {n for n, level in alone.items() if level == "error"} <= {
        n for n, level in beside.items() if level == "error"
    }


@pytest.mark.parametrize(
    ("ask", "said"),
    [
        ('One sentence about {topic}, with the words "{a}" and "{b}".', "uses the words"),
        ("写一句关于{topic}的话，用上“{a}”和“{b}”。", "这句话用"),
    ],
)
def test_a_sentence_about_the_task_is_tried(ask, said):
    rows = [{**row, "a": "red", "b": "iron"} for row in ROWS]

    def has_all(text, row):
        return float(all(row[name] in text for name in ("topic", "a", "b")) and text[-1:] in ".。")

    def has_all_and_no_more(text, row):
        return has_all(text, row) * float(not re.search("words|with|这句话|答案", text))

    name = "reward/pays-talk-of-the-task"
    found = {f.name: f for f in audit_rewards(make_case(has_all, ask, rows)).findings}
    assert found[name].level == "warning"
    assert said in found[name].where[0]
    assert name not in list_levels(make_case(has_all_and_no_more, ask, rows))


def test_partial_credit_for_nothing_is_no_refusal():
    """Three of four checks pass an empty answer; one of two passes, and nothing is said."""
    most = list_levels(make_case(lambda text, row: 0.75 + 0.25 * has_n_words(text, row)))
    assert most["reward/pays-empty"] == "warning"
    half = list_levels(make_case(lambda text, row: 0.5 + 0.5 * (text == str(row))))
    assert "reward/pays-empty" not in half


def test_samples_say_what_good_answers_earn():
    """A reward of at most 0.8: what earns that without the task is seen with samples only."""
    case = make_case(lambda text, row: 0.8 * (row["topic"] in text))
    assert "reward/pays-echo" not in [f.name for f in audit_rewards(case).errors]
    samples = {e.id: [f"I like {e.fields['topic']}.", "No."] for e in case.examples}
    assert list_levels(replace(case, samples=samples))["reward/pays-echo"] == "error"


def test_a_base_that_earns_little_does_not_lower_the_bar():
    """Half of the maximum for an echo is partial credit, and no sample earns more."""
    case = make_case(lambda text, row: 0.5 * (row["topic"] in text) + 0.5 * (text == str(row)))
    samples = {e.id: [str(e.fields["topic"])] for e in case.examples}
    assert audit_rewards(replace(case, samples=samples)).errors == ()


def test_samples_that_all_earn_the_same_are_a_warning():
    case = make_case(lambda text, row: float(row["topic"] in text and len(text.split()) >= 3))
    alike = list_levels(replace(case, samples={e.id: ["No."] for e in case.examples}))
    assert alike["reward/samples-earn-the-same"] == "warning"


def test_the_best_answers_to_other_rows_are_tried():
    case = make_case(lambda text, row: float(len(text.split()) == 3 and text.istitle()))
    samples = {e.id: [f"{e.fields['topic'].title()} Is Fine", "no"] for e in case.examples}
    assert list_levels(replace(case, samples=samples))["reward/pays-constant"] == "warning"


def test_nothing_is_tried_that_cannot_be_said():
    seen: list[str] = []
    case = make_case(lambda text, row: float(bool(seen.append(text))), max_new_tokens=10)
    audit_rewards(case)
    assert max(len(text.encode()) for text in seen) <= 40


def test_a_reward_that_forgets_is_not_repeatable():
    told: list[str] = []
    case = make_case(lambda text, row: Score(float(told.count(text) == 0), str(told.append(text))))
    assert list_levels(case)["reward/not-repeatable"] == "error"
