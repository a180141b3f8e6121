"""What must be known first: each warning comes from some run folder, and a clean run has none."""

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from agreement import draw_agreement
from run_folders import POLICIES
from written_pages import show_page

from groupwise.core import Example, append_jsonl, write_json, write_jsonl
from groupwise.evaluation.baselines import (
    JOINT,
    MAJORITY,
    PICTURE_ONLY,
    TEXT_ONLY,
    predict_joint,
    predict_majority,
    predict_picture_only,
    predict_text_only,
)
from groupwise.evaluation.metrics import (
    Metric,
    PairedComparison,
    compare_pairs,
    compute_metrics,
    write_metrics,
)
from groupwise.evaluation.predictions import (
    Language,
    Measure,
    Policies,
    Prediction,
    RunPolicy,
    read_predictions,
    write_policies,
    write_predictions,
)
from groupwise.evaluation.report.phrases import LANGUAGES, Phrases
from groupwise.evaluation.report.run import Report, judge_difference
from groupwise_recipes.on_task.agreement import list_agreements

LABELS = ("on-task", "off-task")
TRUTHS: list[str | None] = [LABELS[n % 2] for n in range(120)]
SAME: list[str | None] = ["on-task"] * 120
WORSE = [LABELS[0] if n % 3 == 0 else truth for n, truth in enumerate(TRUTHS)]
RIGHT = [LABELS[1 - n % 2] if n % 10 == 0 else truth for n, truth in enumerate(TRUTHS)]
PHRASES = {name: Phrases(name, policies=Policies(POLICIES)) for name in LANGUAGES}
Make = Callable[..., Path]
Change = Callable[[Path], Any]


@pytest.fixture
def make_run(tmp_path: Path, make_table: Callable[..., list[Prediction]]) -> Make:
    """A small run without anything to warn of, except what is changed."""

    def make(**answers: list[str | None]) -> Path:
        given = answers or {"majority": SAME, "grpo": RIGHT}
        items = [
            replace(item, text=f"{policy} says {item.text}")
            for policy, column in given.items()
            for item in make_table(list(zip(TRUTHS, column, strict=False)), policy=policy)
        ]
        write_predictions(tmp_path / "evaluate/predictions.jsonl", items)
        write_metrics(tmp_path / "evaluate/metrics.json", compute_metrics(items, labels=LABELS))
        write_policies(tmp_path, POLICIES)
        write_json(tmp_path / "audit/audit.json", {"findings": [], "splits": {}})
        write_json(tmp_path / "manifest.json", {"started_at": "2026-01-01T00:00:00Z"})
        write_json(tmp_path / "evaluate/comparisons.json", [])
        for policy in POLICIES:
            if policy.kind == "trained":
                write_jsonl(tmp_path / str(policy.step) / "metrics.jsonl", [])
        return tmp_path

    return make


def list_notices(run: Path, language: Language = "en") -> list[tuple[str, str, str]]:
    found = Report(run).notices
    say = PHRASES[language].say
    return [(one.level, one.kind, say(one).replace("\u00a0", " ")) for one in found]


def find(name: str, level: str, *, accepted: bool = False) -> dict[str, Any]:
    row: dict[str, Any] = {"level": level, "name": name, "message": f"{name}.", "count": 1}
    return row | ({"accepted": True, "where": ["'' earns 1", "x"]} if accepted else {})


def train(run: Path, step: str, **logged: Any) -> None:
    rows = [{"step": n, "reward": 1.0, "dead_groups": 0.2, **logged} for n in range(1, 13)]
    write_jsonl(run / step / "metrics.jsonl", rows)
    write_json(run / step / "on_policy.json", {"max_kl": 0.0})


def rewrite(run: Path, name: str, **changed: Any) -> None:
    """Change rows of the metrics of the policy ``grpo``."""
    path = run / "evaluate/metrics.json"
    rows = json.loads(path.read_text())
    write_json(path, [{**row, **changed} if row["name"] == name else row for row in rows])


def give_same_text(run: Path) -> None:
    path = run / "evaluate/predictions.jsonl"
    items = [replace(one, text="same") for one in read_predictions(path)]
    write_predictions(path, items)


def cut_predictions(run: Path) -> None:
    path = run / "evaluate/predictions.jsonl"
    path.write_text("\n".join(path.read_text().splitlines()[:-1]) + "\n")


def record_looks(run: Path) -> None:
    (digest,) = {one.split_digest for one in Report(run).metrics}
    for number in range(4):
        look = {"name": str(number), "time": "t", "run": "r", "config": str(number), "seed": 0}
        append_jsonl(run / "looks.jsonl", {**look, "items": digest})


def use_other_versions(run: Path) -> None:
    for step, version in (("sft", "2.12.0"), ("grpo", "2.13.0")):
        write_json(run / step / "step.json", {"packages": {"torch": version, "trl": "1"}})


def warn_in_step(run: Path) -> None:
    write_json(run / "grpo/warnings.json", [{"message": "One by one."}])


def keep(run: Path) -> None:
    """Change nothing."""


def remove(name: str) -> Change:
    return lambda run: (run / name).unlink()


def audit(name: str, level: str, *, accepted: bool = False, folder: str = "audit") -> Change:
    rows = [find(name, level, accepted=accepted)]
    return lambda run: write_json(run / folder / "audit.json", {"findings": rows})


def log(**logged: Any) -> Change:
    return lambda run: train(run, "grpo", **logged)


def train_unchecked(run: Path) -> None:
    train(run, "grpo")
    (run / "grpo/on_policy.json").unlink()


def measure_other_items(run: Path) -> None:
    rewrite(run, "grpo/accuracy", split_digest="other")


HALF: list[str | None] = [*TRUTHS[:80], *SAME[80:]]
BLIND = {"majority": SAME, "text_only": SAME, "grpo": TRUTHS}
FEW = {"majority": SAME[:99], "grpo": RIGHT[:99]}
BAD, ERROR, NOTE, FINE = "warning", "error", "info", {"majority": SAME, "grpo": RIGHT}
ALIKE = FINE | {"sft": RIGHT}
INVALID = FINE | {"grpo": [None] * 7 + TRUTHS[7:]}
PAYS = audit("pays", ERROR, accepted=True, folder="audit_rewards")
NOTICES: list[tuple[str, str, str, Change, dict[str, list[str | None]]]] = [
    ("run.absent", "\ue000manifest.json\ue001.", BAD, remove("manifest.json"), FINE),
    ("run.absent", "\ue000grpo/on_policy.json\ue001.", BAD, train_unchecked, FINE),
    ("run.absent", "comparisons.json", NOTE, remove("evaluate/comparisons.json"), FINE),
    ("run.found", "Leak.", ERROR, audit("Leak", ERROR), FINE),
    ("run.found", "--accept Known: Known.", BAD, audit("Known", NOTE, accepted=True), FINE),
    ("run.found", "long.", BAD, audit("long", BAD, folder="audit_rewards"), FINE),
    ("run.found", "--accept pays: pays. For example, '' earns 1.", ERROR, PAYS, FINE),
    ("run.found", "One by one.", BAD, warn_in_step, FINE),
    ("run.packages", "versions of torch: 2.12.0, 2.13.0.", BAD, use_other_versions, FINE),
    ("run.items", "of split test are of", ERROR, cut_predictions, FINE),
    ("run.items", "they cannot be compared", ERROR, measure_other_items, FINE),
    ("run.invalid", "5.8 % of the answers of GRPO on test are", BAD, keep, INVALID),
    ("run.small", "99 items in 99 clusters", BAD, keep, FEW),
    ("run.not_above", "best baseline: 83.3 % (", BAD, keep, {"majority": WORSE, "grpo": WORSE}),
    ("run.shortcut", "Text only reaches 83.3 %", BAD, keep, BLIND | {"text_only": HALF}),
    ("run.shortcut", "Picture only reaches 83.3 %", BAD, keep, BLIND | {"picture_only": HALF}),
    ("run.same_answers", "SFT warm-up and GRPO give the same text", BAD, give_same_text, ALIKE),
    ("run.constant", "Text only gives one answer for all 120 items of test", BAD, keep, BLIND),
    ("run.alarm", "GRPO, step 12: 50.0 % of the completions", BAD, log(invalid=0.5), FINE),
    ("looks_many", "up to 1.0 standard errors above", BAD, record_looks, FINE),
]


def test_a_clean_run_has_no_notices(make_run: Make) -> None:
    assert list_notices(make_run()) == []


@pytest.mark.parametrize(("kind", "told", "level", "change", "answers"), NOTICES)
def test_each_notice_is_given_for_its_run_in_both_languages(
    kind: str,
    told: str,
    level: str,
    change: Change,
    answers: dict[str, list[str | None]],
    make_run: Make,
) -> None:
    run = make_run(**answers)
    change(run)
    assert (level, kind) in [one[:2] for one in list_notices(run)]
    (text,) = [one[2] for one in list_notices(run) if one[1] == kind]
    assert told in text
    assert [one[1] for one in list_notices(run, "zh")] == [one[1] for one in list_notices(run)]
    html = show_page(Report(run, "zh").lay_out())[0]
    assert html.index('<ul class="notices"') < html.index("<section")


def test_the_same_text_is_told_only_of_what_was_trained(make_run: Make) -> None:
    """Two ways to read one model, or two trainings of one start, say nothing of a training."""
    run = make_run(majority=SAME, prompt=RIGHT, text_only=WORSE, sft_control=RIGHT, grpo=RIGHT)
    give_same_text(run)
    assert "run.same_answers" not in [kind for _, kind, _ in list_notices(run)]


def test_errors_come_first_and_infos_of_audits_are_no_notices(make_run: Make) -> None:
    run = make_run()
    rows = [find("Fine", "info"), find("Odd", "warning"), find("Leak", "error")]
    write_json(run / "audit/audit.json", {"findings": rows})
    write_json(run / "audit_rewards/audit.json", {"findings": [find("Fine", "info")]})
    assert [one[::2] for one in list_notices(run)] == [
        ("error", "Leak."),
        ("warning", "Odd."),
    ]
    html = show_page(Report(run).lay_out())[0]
    assert html.index('<section id="data"') < html.index("Fine.")


def test_every_alarm_of_every_training_is_told_with_what_to_do(tmp_path: Path) -> None:
    write_policies(tmp_path, POLICIES)
    train(tmp_path, "grpo", invalid=0.5, dead_groups=1.0)
    flat = [{"step": step, "loss": 2.0} for step in range(1, 21)]
    write_jsonl(tmp_path / "sft/metrics.jsonl", flat)
    text = " ".join(told for _, _, told in list_notices(tmp_path))
    assert "SFT warm-up, step 20: the loss is not falling: 2 in the last third of its rows" in text
    assert "To do: warm up longer" in text
    (dead,) = (one for one in Report(tmp_path).notices if "all_groups_dead" in str(one.values))
    assert (dead.level, dead.source) == ("error", "grpo/metrics.jsonl")


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize(
    ("answers", "is_good"),
    [
        ({"majority": SAME, "sft": WORSE, "grpo": TRUTHS}, True),
        ({"majority": WORSE, "sft": SAME, "grpo": WORSE}, False),  # at the baseline
        ({"majority": SAME, "sft": TRUTHS, "grpo": SAME}, False),  # all alike
        ({"majority": SAME, "sft": TRUTHS, "grpo": WORSE}, False),  # worse than its start
        ({"majority": SAME, "prompt": TRUTHS, "sft": WORSE, "grpo": TRUTHS}, False),  # as the base
    ],
)
def test_only_a_policy_that_is_shown_to_be_of_use_is_offered(
    answers: dict[str, list[str | None]], is_good: bool, language: Language, make_run: Make
) -> None:
    run = make_run(**answers)
    write_json(run / "evaluate/verbs.json", ["serve", "export"])
    items = read_predictions(run / "evaluate/predictions.jsonl")
    pairs = [(name, "grpo") for name in ("prompt", "sft") if name in answers]
    write_metrics(run / "evaluate/comparisons.json", compare_pairs(items, pairs))
    html = show_page(Report(run, language).lay_out())[0]
    for shown in ("groupwise serve", "groupwise export"):
        assert (shown in html) == is_good


def polite(example: Example) -> Example:
    """Return the example with a word more where the label is yes."""
    message = example.prompt[0]
    end = " Please." if example.label == "yes" else ""
    parts = [f"{part}{end}" if isinstance(part, str) else part for part in message.parts]
    return replace(example, prompt=(replace(message, parts=tuple(parts)),))


@pytest.mark.parametrize("is_polite", [False, True])
def test_where_a_baseline_is_perfect_the_report_begins_with_it(
    is_polite: bool, tmp_path: Path
) -> None:
    """Real baselines on drawn pictures; asking politely where a colour is shown gives it away."""
    examples = [polite(one) if is_polite else one for one in draw_agreement(270, tmp_path)]
    train_on, test = examples[:150], examples[150:]
    named: dict[str, Any] = {"split": "test", "seed": 0}
    rows = list(predict_majority(train_on, test, **named))
    for predict in (predict_text_only, predict_picture_only):
        rows += predict(train_on, test, **named)
    suggest = partial(list_agreements, concepts=("shows", "asks"))
    rows += predict_joint(train_on, test, suggest=suggest, **named)
    for number, row in enumerate(rows[: len(test)]):
        said = ("yes" if row.label == "no" else "no") if number % 8 == 0 else row.label
        rows.append(replace(row, policy="grpo", predicted=said, text=f"Answer: {said}."))
    write_predictions(tmp_path / "evaluate/predictions.jsonl", rows)
    metrics = compute_metrics(rows, labels=("yes", "no"))
    write_metrics(tmp_path / "evaluate/metrics.json", metrics)
    trained = RunPolicy(name="grpo", title="GRPO", title_zh="GRPO", kind="trained")
    write_policies(tmp_path, (MAJORITY, TEXT_ONLY, PICTURE_ONLY, JOINT, trained))
    write_json(tmp_path / "audit/audit.json", {"findings": [], "splits": {}})
    write_json(tmp_path / "manifest.json", {"started_at": "2026-01-01T00:00:00Z"})
    found = list_notices(tmp_path)
    assert found[0][2].startswith("On test, GRPO is not clearly above the best baseline: 87.5 % (")
    assert ("run.shortcut" in [kind for _, kind, _ in found]) == is_polite


CLEAR = PairedComparison(
    policy_a="sft",
    policy_b="grpo",
    split="test",
    n=400,
    num_clusters=50,
    difference=0.08,
    low=0.03,
    high=0.13,
    num_a_only=10,
    num_b_only=42,
    num_same_answer=340,
    p_value=0.0001,
    p_value_clustered=0.001,
    p_value_holm=0.002,
    split_digest="d",
)
UNCLEAR: list[dict[str, float]] = [
    {"p_value_holm": 0.05},
    {"low": -0.001},
    {"low": 0.0},
    {"p_value_holm": 0.9, "p_value": 0.0001, "p_value_clustered": 0.2},
]


def test_what_is_not_shown_is_not_claimed() -> None:
    worse = replace(CLEAR, difference=-0.08, low=-0.13, high=-0.03)
    missed = Measure("missed", "Missed", "漏检", is_higher_better=False)
    found = [judge_difference(one) for one in (CLEAR, worse)]
    found += [judge_difference(one, missed) for one in (CLEAR, worse)]
    assert found == [1, -1, -1, 1]
    assert [judge_difference(replace(CLEAR, **change)) for change in UNCLEAR] == [0] * 4


def write_findings(
    run: Path, metrics: list[Metric], comparisons: list[PairedComparison], language: Language = "en"
) -> Iterator[str]:
    write_policies(run, POLICIES)
    write_json(run / "evaluate/metrics.json", [asdict(one) for one in metrics])
    write_metrics(run / "evaluate/comparisons.json", comparisons)
    for one in Report(run).findings:
        yield PHRASES[language].say(one).replace("\u00a0", " ")


def test_the_findings_are_made_of_numbers_only(tmp_path: Path) -> None:
    def accuracy(policy: str, value: float) -> Metric:
        return Metric(f"{policy}/accuracy", "test", value, value - 0.03, value + 0.03, 400, "d")

    metrics = [
        accuracy("majority", 0.5),
        accuracy("text_only", 0.52),
        accuracy("grpo", 0.93),
        Metric("grpo/invalid_rate", "test", 0.01, 0.0, 0.03, 400, "d"),
        Metric("grpo/recall:on-task", "test", 0.9, 0.8, 1, 200, "d"),
        Metric("grpo/recall:off-task", "test", 0.96, 0.9, 1, 200, "d"),
    ]
    others = [
        replace(CLEAR, policy_a="sft_control", p_value_holm=0.3, low=-0.01),
        replace(CLEAR, split="dev", policy_a="prompt"),
        replace(CLEAR, policy_a="prompt", difference=-0.08, low=-0.13, high=-0.03),
        replace(CLEAR, measure="missed", policy_a="prompt"),
        replace(CLEAR, policy_a="majority"),
    ]
    comparisons = [
        replace(CLEAR, num_carrying=7.2),
        *others,
        replace(CLEAR, policy_b="sft", num_carrying=9.0),
        replace(CLEAR, policy_b="sft_control", num_carrying=20.0),
    ]
    assert " ".join(write_findings(tmp_path, metrics, comparisons)) == (
        "GRPO is clearly better than SFT warm-up (+8.0 points, +3.0 to +13.0, p = 0.002); "
        "Majority label (+8.0 points, +3.0 to +13.0, p = 0.002). "
        "GRPO is clearly worse than Prompting (−8.0 points, −13.0 to −3.0, p = 0.002). "
        "GRPO is not told apart from SFT control (+8.0 points, −1.0 to +13.0, p = 0.300). "
        "Resting on few clusters: 2 differences (about 7 carry the variance of one). Where whole "
        "rare clusters have all the gain, p falls below 5 % in up to 15 % of cases without any "
        "difference. The best baseline, Text only, reaches 52.0 %. "
        "This is about these checkpoints; for the method, train each side with several seeds."
    )
    assert len(list(write_findings(tmp_path, metrics, comparisons, "zh"))) == 6
    assert list(write_findings(tmp_path, [accuracy("grpo", 0.9)], [])) == []
    assert list(write_findings(tmp_path, [], [])) == []
