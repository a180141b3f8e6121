"""Comparisons of run folders: fair pairs are recommended from, all others say why not."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from compared_runs import make_answers
from run_folders import VARIED, make_run

from groupwise.core import DataError, EvaluationError, write_json
from groupwise.evaluation import (
    Prediction,
    Section,
    Table,
    read_policies,
    write_policies,
    write_sections,
)
from groupwise.evaluation.comparison import (
    Comparison,
    GridAxis,
    Question,
    Source,
    build_comparison,
    read_sources,
    render_html,
    render_markdown,
    tell_comparison,
)
from groupwise.evaluation.comparison.layout import choose_words, title_recommendation
from groupwise.evaluation.comparison.tables import tabulate_discordant
from groupwise.evaluation.page import LANGUAGES, Language, Words

Compare = Callable[..., Comparison]


def list_reasons(found: Comparison) -> list[str]:
    return [reason.kind for reason in found.recommendation.reasons]


def list_notices(found: Comparison) -> list[str]:
    return [one.values.get("reason", one.kind) for one in found.notices]


def test_a_clear_fair_difference_is_recommended(compare_two: Compare) -> None:
    found = compare_two([make_answers(0.6), make_answers(0.95)])
    assert found.is_fair
    assert found.recommendation.system == "second"
    assert list_reasons(found) == ["evidence.single", "evidence.fair", "evidence.baseline"]
    (pair,) = found.versus
    (gap,) = pair.gaps
    assert gap.difference == pytest.approx(found.cells[0].value - found.cells[1].value)
    assert gap.difference == pytest.approx(gap.test.difference)
    assert gap.difference < 0
    assert gap.is_clear
    evidence = found.recommendation.reasons[0].values
    assert evidence["mean"] == pytest.approx(-gap.difference)
    assert evidence["low"] == pytest.approx(-gap.test.high)
    assert '<td class="strong"' in render_html(found)


def test_a_difference_that_chance_explains_is_not(compare_two: Compare) -> None:
    found = compare_two([make_answers(0.8, name="a1"), make_answers(0.81, name="b1")])
    assert found.recommendation.system is None
    assert list_reasons(found) == ["reason.not_clear"]
    kinds = [finding.kind for finding in found.findings]
    assert kinds == [
        *("finding.values", "finding.unclear", "finding.discordant", "finding.power"),
        "finding.one_training",
    ]


def test_an_unfair_pair_has_no_winner_anywhere(compare_two: Compare) -> None:
    changes = {**VARIED, "evaluate/conditions.json:data/train/digest": "other"}
    found = compare_two([make_answers(0.6), make_answers(0.95)], ({}, changes))
    assert not found.is_fair
    assert found.versus[0].gaps[0].is_clear
    assert list_reasons(found) == ["reason.unfair"]
    assert found.notices[0].values["aspect"] == "data"
    assert found.findings[0].kind == "finding.confounded"
    page = render_html(found)
    assert "strong" not in page.split("</style>")[1]
    assert "★" not in page


def test_a_trained_policy_below_the_baseline_is_not_recommended(compare_two: Compare) -> None:
    found = compare_two([make_answers(0.1), make_answers(0.5)])
    assert found.versus[0].gaps[0].is_clear
    assert list_reasons(found) == ["reason.not_above_baseline"]
    assert found.recommendation.reasons[0].values["baseline"] == 0.5


def score(rows: list[Prediction], value: float) -> list[Prediction]:
    return [
        replace(row, scores={"overlap": min(1.0, value + (0.01 * (n % 5)))})
        for n, row in enumerate(rows)
    ]


def test_a_score_without_a_baseline_is_not_recommended(compare_two: Compare) -> None:
    policies = ("sft", "grpo")
    rows = [score(make_answers(0.8, policies=policies), value) for value in (0.3, 0.7)]
    found = compare_two(rows, measure="overlap")
    assert list_reasons(found) == ["reason.no_baseline"]
    assert found.cells[1].value == pytest.approx(0.72)


def test_a_baseline_on_other_items_is_none(compare_two: Compare) -> None:
    rows = [score(make_answers(0.8), value) for value in (0.3, 0.7)]
    whole = compare_two(rows, measure="overlap")
    assert list_reasons(whole) != ["reason.no_baseline"]
    halved = [
        [row for n, row in enumerate(answers) if row.policy != "majority" or n % 2]
        for answers in rows
    ]
    assert list_reasons(compare_two(halved, measure="overlap")) == ["reason.no_baseline"]


def test_less_is_better_of_invalid_answers(compare_two: Compare) -> None:
    def spoil(rows: list[Prediction], every: int) -> list[Prediction]:
        return [
            replace(row, predicted=None, reason="no label")
            if n % every == 0 and row.policy != "majority"
            else row
            for n, row in enumerate(rows)
        ]

    rows = [spoil(make_answers(0.8), 3), spoil(make_answers(0.8), 12)]
    found = compare_two(rows, measure="invalid_rate")
    assert not found.measure.is_higher_better
    assert found.versus[0].gaps[0].difference > 0
    assert found.versus[0].gaps[0].is_clear
    assert list_reasons(found) == ["reason.not_above_baseline"]


def test_a_score_of_which_a_run_tells_that_less_is_better(compare_two: Compare) -> None:
    def rename(rows: list[Prediction]) -> list[Prediction]:
        return [replace(row, scores={"missed": row.scores["overlap"]}) for row in rows]

    def mix(value: float) -> list[Prediction]:
        rows = score(make_answers(0.8), value)
        blind = score(make_answers(0.8), 0.6)
        return [b if a.policy == "majority" else a for a, b in zip(rows, blind, strict=True)]

    rows = [mix(0.2), mix(0.7)]
    assert compare_two(rows, measure="overlap").recommendation.system == "second"
    found = compare_two([rename(one) for one in rows], measure="missed")
    assert not found.measure.is_higher_better
    assert found.recommendation.system == "first"
    [pair] = found.versus
    assert pair.discordant is not None
    assert (pair.discordant.num_first_better, pair.discordant.num_second_better) == (240, 0)


def test_other_items_are_not_compared(compare_two: Compare) -> None:
    found = compare_two([make_answers(0.6), make_answers(0.9, num_items=200)])
    (gap,) = found.versus[0].gaps
    assert (gap.difference, gap.test, gap.why_none) == (None, None, "other_items")
    assert set(list_reasons(found)) == {"reason.unfair", "reason.other_items"}
    kinds = [finding.kind for finding in found.findings]
    assert kinds[1:] == ["finding.other_items", "finding.one_training"]


def test_the_same_items_in_other_clusters_are_not_paired(compare_two: Compare) -> None:
    rows = make_answers(0.6)
    found = compare_two([rows, [replace(row, cluster="all") for row in rows]])
    assert found.versus[0].gaps[0].why_none == "other_items"


def test_identical_answers_are_remarked(compare_two: Compare) -> None:
    found = compare_two([make_answers(0.8), make_answers(0.8)])
    assert "same_predictions" in list_notices(found)
    assert found.recommendation.system is None


def test_few_items_in_few_clusters_are_remarked(compare_two: Compare) -> None:
    found = compare_two([make_answers(0.5, num_items=40), make_answers(0.9, num_items=40)])
    assert {"notice.few_items", "notice.few_clusters"} <= set(list_notices(found))


def test_three_runs_are_compared_in_all_pairs(compare_two: Compare) -> None:
    answers = [make_answers(x, name=str(x)) for x in (0.55, 0.75, 0.97)]
    third = {**VARIED, "manifest.json:config/grpo/beta": 0.2, "grpo/resolved.json:beta": 0.2}
    found = compare_two(answers, ({}, VARIED, third))
    assert [(one.first, one.second) for one in found.versus] == [
        ("first", "second"),
        ("first", "third"),
        ("second", "third"),
    ]
    assert found.recommendation.system == "third"
    holm = [one.gaps[0].test.p_value_holm for one in found.versus]
    plain = [one.gaps[0].test.p_value_clustered for one in found.versus]
    assert all(a >= b for a, b in zip(holm, plain, strict=True))
    assert max(holm) > max(plain) or holm[1] > plain[1]


def test_discordant_items_come_with_both_answers(compare_two: Compare) -> None:
    found = compare_two([make_answers(0.6), make_answers(0.95)])
    listed = found.versus[0].discordant
    assert len(listed.shown) == 20
    test = found.versus[0].gaps[0].test
    assert (listed.num_first_better, listed.num_second_better) == (test.num_b_only, test.num_a_only)
    for one in listed.shown:
        assert {one.value_a, one.value_b} == {0.0, 1.0}
        right = one.answer_a if one.value_a else one.answer_b
        assert right == f"I say {one.label}"
        assert one.task.startswith("任务")


def test_items_without_a_truth_have_no_column_for_it(compare_two: Compare) -> None:
    found = compare_two([make_answers(0.6), make_answers(0.95)])
    [(_, with_truths)] = tabulate_discordant(found, Words("en"))
    pair = found.versus[0]
    shown = tuple(replace(one, label=None) for one in pair.discordant.shown)
    pair = replace(pair, discordant=replace(pair.discordant, shown=shown))
    [(_, without)] = tabulate_discordant(replace(found, versus=(pair,)), Words("en"))
    assert with_truths.head == ("Item", "Truth", *without.head[1:])
    assert [row[1] for row in without.rows] == [row[2] for row in with_truths.rows]


def test_the_last_policy_of_all_runs_is_compared(compare_two: Compare) -> None:
    rows = make_answers(0.8)
    short = [row for row in make_answers(0.9) if row.policy != "grpo"]
    found = compare_two([rows, short])
    assert [one.policy for one in found.systems] == ["sft", "sft"]
    with pytest.raises(EvaluationError, match="no policy in common"):
        compare_two([[r for r in rows if r.policy == "grpo"], short])


def test_two_policies_of_one_run(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run", predictions=make_answers(0.8))
    sources = [Source("a", (), folder, "sft"), Source("b", (), folder, "grpo")]
    question = Question(factors=("policy",))
    found = build_comparison(read_sources(sources, (), question))
    assert found.is_fair
    assert [one.policy for one in found.systems] == ["sft", "grpo"]
    assert not build_comparison(read_sources(sources, (), Question())).is_fair


def test_settings_and_data_stand_side_by_side(compare_two: Compare) -> None:
    found = compare_two([make_answers(0.6), make_answers(0.9)])
    rows = {(row.aspect, row.key): row for row in found.configuration}
    assert rows["config", "grpo.beta"].values == ("0.12", "0.15")
    assert rows["config", "grpo.beta"].kind == "intended"
    assert rows["config", "sft.epochs"].kind is None
    kinds = [row.kind is None for row in found.configuration]
    assert kinds == sorted(kinds)
    data = {(row.aspect, row.key): row.values for row in found.data}
    assert data["train", "num_rows"] == ("200", "200")


def test_the_same_material_gives_the_same_comparison(compare_two: Compare) -> None:
    answers = [make_answers(0.6), make_answers(0.9)]
    assert compare_two(answers) == compare_two(answers)


def test_counts_of_the_data_audit_stand_side_by_side(tmp_path: Path) -> None:
    audit = {
        "num_rows": 100,
        "drops": {"total": 7},
        "findings": [{"level": "warning"}],
        "splits": {"train": {"num_examples": 80, "num_clusters": 20, "labels": {}}},
    }
    sources = [
        Source(name, (), make_run(tmp_path / name, change, predictions=make_answers(0.8)))
        for name, change in (("a", {}), ("b", VARIED))
    ]
    write_json(tmp_path / "a/audit/audit.json", audit)
    question = Question(factors=("grpo.beta",))
    found = build_comparison(read_sources(sources, (), question))
    rows = {row.key: row.values for row in found.data if row.aspect == "audit"}
    assert rows == {
        "num_rows": ("100", None),
        "num_rows_not_used": ("7", None),
        "num_errors": ("0", None),
        "num_warnings": ("1", None),
        "train.num_examples": ("80", None),
        "train.num_clusters": ("20", None),
    }
    (tmp_path / "b/audit").mkdir()
    (tmp_path / "b/audit/audit.json").write_text("{")
    with pytest.raises(DataError, match=r"audit\.json is not JSON"):
        read_sources(sources, (), question)


WEIGHTS = {"prepare/base": 0.0, "sft/policy": 1.0, "grpo/policy": 2.0}


@pytest.mark.parametrize(
    ("others", "told"),
    [
        (WEIGHTS, "identical"),
        ({**WEIGHTS, "grpo/policy": 3.0}, "identical_other_weights"),
        (None, "identical_answers"),
    ],
)
def test_a_run_and_its_copy_are_called_identical(
    others: dict[str, float] | None, told: str, tmp_path: Path
) -> None:
    rows = make_answers(0.8)
    sources = [
        Source(name, (), make_run(tmp_path / name, predictions=rows, weights=weights))
        for name, weights in (("demo", WEIGHTS), ("copy", others))
    ]
    found = build_comparison(read_sources(sources, (), Question()))
    assert [n for n in list_notices(found) if n.startswith("identical")] == [told]
    assert found.is_fair
    assert list_reasons(found) == ["reason.equal"]
    said = {name: " ".join(tell_comparison(found, language=name)) for name in LANGUAGES}
    assert "all 240 predictions" in said["en"]
    assert "全部 240 个预测" in said["zh"]
    assert "best mean" not in said["en"]


def test_runs_that_differ_in_an_answer_are_not_called_identical(compare_two: Compare) -> None:
    rows = make_answers(0.8)
    found = compare_two([rows, make_answers(0.8, name="other")], ({}, {}), factors=())
    assert not [n for n in list_notices(found) if n.startswith("identical")]


def test_a_policy_with_one_answer_for_everything_is_told(compare_two: Compare) -> None:
    rows = [replace(r, predicted="on-task") for r in make_answers(0.8)]
    found = compare_two([make_answers(0.8), rows])
    (notice,) = [one for one in found.notices if one.kind == "notice.constant"]
    assert (notice.values["name"], notice.values["answers"], notice.values["n"]) == (
        "second",
        ["on-task"],
        240,
    )
    assert "gives one answer for all 240\u00a0items: on-task." in render_html(found)


@pytest.mark.parametrize(
    ("language", "said"),
    [
        ("en", "One training per side says nothing about the method"),
        ("zh", "每一方只训练一次，说明不了方法的优劣"),
    ],
)
def test_one_training_per_side_is_called_a_pair_of_checkpoints(
    language: Language, said: str, compare_two: Compare
) -> None:
    found = compare_two([make_answers(0.6), make_answers(0.95)])
    assert said in render_html(found, language=language)
    assert {"en": "checkpoints", "zh": "检查点"}[language] in title_recommendation(
        found, choose_words(found, language)
    )


def test_several_seeds_per_side_are_counted(tmp_path: Path) -> None:
    sources: list[Source] = []
    for beta, change in (("0.12", {}), ("0.15", VARIED)):
        for seed in (0, 1, 2):
            seeded = {**change, "manifest.json:seed": seed, "manifest.json:config/seed": seed}
            rows = make_answers(0.8, name=f"{beta} {seed}", num_items=40)
            folder = make_run(tmp_path / f"{beta}-{seed}", seeded, predictions=rows)
            sources.append(Source(beta, (str(seed),), folder))
    question = Question(factors=("grpo.beta",), system_axis="grpo.beta")
    axes = [GridAxis("seed", ("0", "1", "2"))]
    found = build_comparison(read_sources(sources, axes, question))
    (scope,) = [one for one in found.findings if one.kind == "finding.seeds"]
    assert scope.values == {"num": 3}


def test_what_the_report_of_each_run_adds_stands_in_the_comparison(
    compare_two: Compare, tmp_path: Path
) -> None:
    table = Table("", ("Type", "Agreed"), (("maths", "9 of 10"),))
    write_sections(
        tmp_path / "second" / "evaluate" / "sections.json",
        [
            Section("Rules and judge", "One text.", (table,), language="en"),
            Section("规则与裁判", language="zh"),
            Section("Costs"),
        ],
    )
    found = compare_two([make_answers(0.6), make_answers(0.95)])
    assert list(found.sections) == ["second"]
    english = render_markdown(found)
    assert "What the report of each says" in english
    for said in ("Rules and judge", "One text.", "9 of 10", "Costs"):
        assert said in english
    assert "规则与裁判" not in english
    chinese = render_markdown(found, language="zh")
    assert "规则与裁判" in chinese
    assert "Costs" in chinese
    assert "Rules and judge" not in chinese


def test_a_measure_that_is_none_of_a_policy_is_a_dash(tmp_path: Path) -> None:
    sources: list[Source] = []
    for name, has_it in (("reasons", True), ("silent", False)):
        rows = [
            replace(row, scores={"alignment": 1.0} if has_it and row.policy == "grpo" else {})
            for row in make_answers(0.8)
        ]
        folder = make_run(tmp_path / name, predictions=rows)
        listed = [
            replace(one, inapplicable=() if has_it else ("alignment",))
            for one in read_policies(folder).listed
        ]
        write_policies(folder, listed)
        sources.append(Source(name, (), folder))
    found = build_comparison(read_sources(sources, (), Question(measure="alignment")))
    assert [(cell.state, cell.value) for cell in found.cells] == [
        ("done", 1.0),
        ("inapplicable", None),
    ]
    shown = render_markdown(found)
    assert "does not apply" in shown
    assert "have not run" not in shown
    with pytest.raises(EvaluationError, match="alignmnt"):
        read_sources(sources[:1], (), Question(measure="alignmnt"))
