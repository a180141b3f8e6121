"""Whole calibrations, from files to files, by rules and by a tiny model."""

import json
import os
import random
from collections import Counter
from fractions import Fraction
from pathlib import Path

import pytest
import yaml

from groupwise.core import ConfigError, EvaluationError, JudgeError, load_config, write_jsonl
from groupwise.judge_calibration.calibration import calibrate_judge, plan_calibration
from groupwise.judge_calibration.verdicts import load_rated, read_verdicts
from groupwise.judges import JudgeConfig

WORDS = ("a", "longer", "text", "about", "一些", "numbers", "und", "Wörter")
EXAMPLES = Path(__file__).parents[3] / "examples" / "judges"
REAL = Path(os.environ.get("GROUPWISE_DATA", "../shared/data")) / "llmbar"


def write_pairs(path, num_pairs=60):
    """Pairs of drawn lengths; some are equally long."""
    dice = random.Random(5)
    rows = []
    for number in range(num_pairs):
        first = " ".join(dice.choices(WORDS, k=dice.randint(1, 6))) + "!"
        second = " ".join(dice.choices(WORDS, k=dice.randint(1, 6))) + "?"
        if number % 15 == 0:
            second = first[:-1] + "?"
        rows.append(
            {
                "question": f"Write text {number}.",
                "answer_a": first,
                "answer_b": second,
                "preferred": dice.choice("ab"),
                "subset": "Plain" if number % 3 else "Hard/One",
            }
        )
    write_jsonl(path, rows)
    return rows


def calibrate(tmp_path, config, source, **named):
    rated = load_rated(source)
    settings = load_config(JudgeConfig, config)
    out = tmp_path / "out"
    found = calibrate_judge(settings, rated, source, out=out, **named)
    written = json.loads((out / "calibration.json").read_text())
    values = {(m["split"], m["name"].split("/", 1)[1]): m for m in written["metrics"]}
    return found, values, out


def count_kappa(cells):
    """Cohen's kappa of (people, judge, weight) in exact arithmetic."""
    table = Counter()
    for people, said, weight in cells:
        table[people, said] += Fraction(weight)
    total = sum(table.values())
    seen = sum(table[side, side] for side in "ab") / total
    chance = sum(
        sum(table[side, x] for x in "ab") * sum(table[x, side] for x in "ab") for side in "ab"
    ) / (total * total)
    return (seen - chance) / (1 - chance)


def list_real_pairs():
    """LLMBar as published, read without the code under test: (label, lengths)."""
    for file in sorted(REAL.rglob("dataset.json")):
        for row in json.loads(file.read_text()):
            yield "ab"[row["label"] - 1], len(row["output_1"]), len(row["output_2"])


def expect_longer(pairs):
    """Figures of the judge that prefers the longer answer, counted from (label, lengths)."""
    known = [(label, "a" if one > two else "b") for label, one, two in pairs if one != two]
    num_right = sum(label == longer for label, longer in known)
    return {
        "agreement": Fraction(num_right, len(known)),
        "agreement_unflipped": Fraction(num_right, len(known)),
        "kappa": count_kappa([(label, longer, 1) for label, longer in known]),
        "flip_rate": 0,
        "first_position": Fraction(1, 2),
        "longer_judge": 1,
        "longer_people": Fraction(num_right, len(known)),
        "length_bias": 1 - Fraction(num_right, len(known)),
        "right_in_both_orders": Fraction(num_right, len(pairs)),
        "right_on_balance": Fraction(num_right, len(pairs)),
        "no_verdict_rate": 1 - Fraction(len(known), len(pairs)),
    }


def expect_first(pairs):
    """Figures of the judge that always prefers the first: each answer once of two orders."""
    half = Fraction(1, 2)
    unlike = [(label, "a" if one > two else "b") for label, one, two in pairs if one != two]
    people = Fraction(sum(label == longer for label, longer in unlike), len(unlike))
    return {
        "agreement": half,
        "kappa": count_kappa([(label, side, half) for label, *_ in pairs for side in "ab"]),
        "flip_rate": 1,
        "first_position": 1,
        "longer_judge": half,
        "longer_people": people,
        "length_bias": half - people,
        "right_in_both_orders": 0,
        "right_on_balance": 0,
        "no_verdict_rate": 0,
    }


NOTICES = {
    "always_first": "100.0\u00a0% of the verdicts change with the order of the answers",
    "longer": "The judge prefers the longer answer more often than people do, by 5",
}
EXPECT = {"always_first": expect_first, "longer": expect_longer}


def check_figures(values, expected):
    found = {name: row["value"] for (split, name), row in values.items() if split == "all"}
    assert set(found) == set(expected)
    for name, value in expected.items():
        assert found[name] == pytest.approx(float(value), abs=1e-12), name


@pytest.mark.parametrize("rule", EXPECT)
def test_rules_get_the_figures_that_are_known_beforehand(tmp_path, rule):
    rows = write_pairs(tmp_path / "pairs.jsonl")
    _, values, out = calibrate(tmp_path, {"kind": "rule", "rule": rule}, tmp_path / "pairs.jsonl")
    pairs = [(row["preferred"], len(row["answer_a"]), len(row["answer_b"])) for row in rows]
    assert any(one == two for _, one, two in pairs)
    assert expect_first(pairs)["kappa"] == 0
    check_figures(values, EXPECT[rule](pairs))
    hard = [pair for pair, row in zip(pairs, rows, strict=True) if row["subset"] == "Hard/One"]
    agreement = EXPECT[rule](hard)["agreement"]
    assert values["Hard", "agreement"] == values["Hard/One", "agreement"] | {"split": "Hard"}
    assert values["Hard", "agreement"]["value"] == pytest.approx(float(agreement))
    assert len(read_verdicts(out / "verdicts.jsonl")) == 2 * len(rows)
    page = (out / "report.html").read_text()
    assert "<script" not in page
    assert "://" not in page.replace("http://www.w3.org", "")
    assert f"<h1>Judge {rule}</h1>" in page
    assert NOTICES[rule] in page


def test_the_page_speaks_the_language_of_the_judge(tmp_path):
    write_pairs(tmp_path / "pairs.jsonl", 12)
    config = {"kind": "rule", "rule": "longer", "language": "zh"}
    _, _, out = calibrate(tmp_path, config, tmp_path / "pairs.jsonl")
    page = (out / "report.html").read_text(encoding="utf-8")
    assert "<h2>与人的一致性</h2>" in page
    assert "Agreement" not in page.split("</style>")[1]


@pytest.mark.skipif(not REAL.is_dir(), reason=f"LLMBar is not in {REAL} (set GROUPWISE_DATA)")
@pytest.mark.parametrize("rule", EXPECT)
def test_rules_on_llmbar_itself(tmp_path, rule):
    _, values, _ = calibrate(tmp_path, {"kind": "rule", "rule": rule}, REAL)
    check_figures(values, EXPECT[rule](list(list_real_pairs())))


def test_a_tiny_model_is_measured_and_not_asked_twice(tmp_path, text_folder):
    source = tmp_path / "pairs.jsonl"
    write_pairs(source, 12)
    config = {"kind": "logit", "model": str(text_folder), "name": "tiny"}
    seen = []
    found, values, out = calibrate(
        tmp_path, config, source, report_progress=lambda *done: seen.append(done)
    )
    assert found.num_calls == 24
    assert seen[-1] == (24, 24)
    assert {"agreement", "flip_rate", "ece", "brier"} <= {name for _, name in values}
    rows = read_verdicts(out / "verdicts.jsonl")
    right = [(row.verdict == row.label, row.confidence) for row in rows]
    assert values["all", "agreement"]["value"] == pytest.approx(
        sum(is_right for is_right, _ in right) / 24
    )
    brier = sum((1 - sure if is_right else sure) ** 2 for is_right, sure in right) / 24
    assert values["all", "brier"]["value"] == pytest.approx(brier)
    assert "Calibration error" in (out / "report.html").read_text()

    again, same, _ = calibrate(tmp_path, config, source)
    assert again.num_calls == 0
    assert same == values


def test_single_answers_with_true_and_false(tmp_path, text_folder):
    source = tmp_path / "answers.jsonl"
    rows = [
        {"question": f"{n}+1?", "answer": str(n + n % 2), "label": n % 2 == 1, "reference": str(n)}
        for n in range(10)
    ]
    write_jsonl(source, rows)
    config = {"kind": "logit", "model": str(text_folder)}
    found, values, out = calibrate(tmp_path, config, source)
    assert found.num_calls == 20, "both orders of the options"
    assert found.labels == ("false", "true"), "the judge's labels in people's words"
    assert "option_flip_rate" in {name for _, name in values}
    assert "flip_rate" not in {name for _, name in values}
    [first, *_] = read_verdicts(out / "verdicts.jsonl")
    assert (first.order, first.longer) == ("", None)


def test_a_judge_without_a_verdict_is_told(tmp_path, taught_text_folder):
    """The taught policy answers nothing that counts, so the run has to allow it."""
    source = tmp_path / "pairs.jsonl"
    write_pairs(source, 3)
    config = {
        "kind": "generative",
        "model": str(taught_text_folder),
        "sampling": {"temperature": 1.0, "max_new_tokens": 4},
        "settings": {"retry": {"max_attempts": 1}, "stop": {"max_no_verdict_rate": 1.0}},
    }
    found, values, out = calibrate(tmp_path, config, source)
    assert len(read_verdicts(out / "verdicts.jsonl")) == 3 * 2
    assert values["all", "no_verdict_rate"]["value"] == 1
    assert sum(found.causes.values()) == 6
    worst = {"right_in_both_orders": 0, "right_on_balance": 0, "no_verdict_rate": 1}
    assert {name: row["value"] for (_, name), row in values.items()} == worst
    assert "The judge gave no verdict at all." in (out / "report.html").read_text()


def test_the_plan_counts_and_asks_nothing(tmp_path):
    source = tmp_path / "pairs.jsonl"
    write_pairs(source, 9)
    logit = {"kind": "logit", "model": "nowhere/at-all"}
    plan = plan_calibration(load_config(JudgeConfig, logit), load_rated(source))
    assert (plan.num_items, plan.num_questions, plan.num_calls) == (9, 18, 18)
    assert plan.subsets == {"Hard/One": 3, "Plain": 6}
    longest = max(load_rated(source).items, key=lambda i: len(i.question + "".join(i.answers)))
    assert all(answer in plan.first_prompt for answer in longest.answers)
    drawing = {"kind": "generative", "model": "x/y", "sampling": {"temperature": 0.7}}
    plan = plan_calibration(load_config(JudgeConfig, drawing), load_rated(source))
    assert (plan.num_questions, plan.num_calls) == (18, 18)
    rule = load_config(JudgeConfig, {"kind": "rule", "rule": "longer"})
    assert plan_calibration(rule, load_rated(source)).num_calls == 0


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.stem)
def test_the_examples_fit_pairs(tmp_path, path):
    write_pairs(tmp_path / "pairs.jsonl", 3)
    config = load_config(JudgeConfig, path)
    assert plan_calibration(config, load_rated(tmp_path / "pairs.jsonl")).num_questions == 6


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"kind": "rule"}, "a rule judge needs rule and nothing else"),
        ({"kind": "rule", "rule": "longer", "model": "m"}, "a rule judge needs rule"),
        ({"kind": "logit"}, "needs model or server"),
        ({"kind": "logit", "model": "m", "rule": "longer"}, "needs model or server"),
        ({"kind": "logit", "modle": "m"}, "modle: unknown key; did you mean 'model'?"),
        ({"kind": "oracle"}, "kind: "),
    ],
)
def test_a_wrong_config_is_one_sentence(config, words):
    with pytest.raises(ConfigError) as caught:
        load_config(JudgeConfig, yaml.safe_load(yaml.safe_dump(config)))
    assert words in str(caught.value)


def test_judges_and_data_that_do_not_fit(tmp_path):
    pairs, answers = tmp_path / "pairs.jsonl", tmp_path / "answers.jsonl"
    write_pairs(pairs, 3)
    write_jsonl(answers, [{"question": "q", "answer": "x", "label": "True"}])
    rule = load_config(JudgeConfig, {"kind": "rule", "rule": "longer"})
    with pytest.raises(EvaluationError, match="labels are not those of the data"):
        plan_calibration(rule, load_rated(answers))
    logit = {"kind": "logit", "model": "m"}
    with pytest.raises(JudgeError, match=r"1 item.* no text for the prompt .*got no reference"):
        plan_calibration(load_config(JudgeConfig, logit), load_rated(answers))
    named = load_config(JudgeConfig, logit | {"labels": ["yes", "no"]})
    with pytest.raises(EvaluationError, match="labels are not those of the data"):
        plan_calibration(named, load_rated(pairs))
    unknown = load_config(JudgeConfig, logit | {"prompt": "none"})
    with pytest.raises(JudgeError, match="no such judge prompt"):
        plan_calibration(unknown, load_rated(pairs))
