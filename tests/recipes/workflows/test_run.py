"""The whole way of workflows on a handful of generated problems."""

from pathlib import Path

import pytest
import yaml
from command_line import CommandLine
from plan_keys import list_done
from recipe_plans import list_all_steps
from recipe_runs import RecipeJob
from sandbox_host import MISSING

from groupwise.core import read_json, read_jsonl, write_jsonl
from groupwise.data import read_examples
from groupwise.evaluation.predictions import read_policies, read_predictions
from groupwise.evaluation.report.tables import read_sections
from groupwise_recipes.workflows.rivals import RIVALS
from groupwise_recipes.workflows.scoring import read_problem

pytestmark = pytest.mark.skipif(MISSING is not None, reason=str(MISSING))


@pytest.mark.slow
def test_every_stage_there_is_did_its_work_with_what_it_declares(
    tiny_run: Path, tmp_path: Path
) -> None:
    assert list_done(tiny_run) == list_all_steps("workflows", tmp_path)


WITHOUT_WARMUP = {
    "sft": "null",
    "data.num_generated": 60,
    "data.max_validation": 3,
    "data.max_test": 6,
    "rivals.num_problems": 3,
    "grpo.max_steps": 2,
    "grpo.heldout_every_steps": 2,
    "evaluation.num_heldout_items": 3,
}


def test_without_a_warmup_all_training_problems_are_grpos(
    command_line: CommandLine, tmp_path: Path
) -> None:
    job = RecipeJob("workflows", WITHOUT_WARMUP)
    done = command_line(*job.list_arguments(tmp_path / "run", "--until", "prepare"))
    assert done.returncode == 0, done.stderr
    prepared = tmp_path / "run" / "prepare"
    assert not (prepared / "warmup.jsonl").exists()
    assert len(read_examples(prepared / "train.jsonl")) == 60


@pytest.mark.slow
def test_without_a_warmup_a_run_goes_the_whole_way(tmp_path: Path) -> None:
    run = RecipeJob("workflows", WITHOUT_WARMUP).finish(tmp_path / "run")
    found = {one.policy for one in read_predictions(run / "evaluate" / "predictions.jsonl")}
    assert "grpo" in found
    assert "sft" not in found


@pytest.mark.slow
def test_every_policy_answers_the_same_problems(tiny_run: Path) -> None:
    test = read_examples(tiny_run / "prepare" / "test.jsonl")
    found = read_predictions(tiny_run / "evaluate" / "predictions.jsonl")
    by_policy: dict[str, set[str]] = {}
    for one in found:
        by_policy.setdefault(one.policy, set()).add(one.example_id)
    assert set(by_policy) == {*RIVALS, "prompt", "sft", "gepa", "grpo"}
    assert set(map(frozenset, by_policy.values())) == {frozenset(one.id for one in test)}
    direct = [one for one in found if one.policy == "direct"]
    assert all(one.fields["tokens"] > 0 and one.fields["calls"] == 1 for one in direct)


@pytest.mark.slow
def test_a_policy_is_measured_on_problems_of_somebody_else(
    tiny_run: Path, command_line: CommandLine
) -> None:
    """Programs are run with the executor of the run; its stub is told of these problems."""
    maths = {"source": "mine", "problem_type": "math"}
    rows = [
        {**maths, "problem": f"What is {n} times 7?", "ground_truth": str(7 * n)} for n in range(4)
    ]
    rows += [{**maths, "problem": "No truth."}, {**maths, **rows[0]}]
    write_jsonl(Path("rows.jsonl"), rows)
    before = (tiny_run / "evaluate" / "predictions.jsonl").read_bytes()
    done = command_line("evaluate", tiny_run, "rows.jsonl", "--out", "out")
    assert done.returncode == 0, done.stderr
    assert "6 rows, 4 asked" in done.stdout
    assert "not used: 1 the column ground_truth is missing" in done.stderr
    assert "is a stub, not a model" in done.stderr
    found = read_predictions(Path("out/evaluate/predictions.jsonl"))
    assert {one.policy for one in found} == {*RIVALS, "grpo"}
    assert {one.fields["source"] for one in found} == {"mine"}
    by_vote = [one for one in found if one.policy == "self_consistency"]
    assert len(by_vote) == 4
    assert any(one.predicted == one.label for one in by_vote)
    assert all(one.fields["calls"] >= 5 and one.fields["tokens"] > 0 for one in by_vote)
    page = Path("out/report.md").read_text(encoding="utf-8")
    assert "one alone was asked about these problems" in page
    assert "is a stub, not a model" in page
    assert (tiny_run / "evaluate" / "predictions.jsonl").read_bytes() == before


@pytest.mark.slow
def test_no_problem_is_in_two_splits_and_all_are_accounted_for(tiny_run: Path) -> None:
    prepared = tiny_run / "prepare"
    splits = {
        name: [read_problem(one).problem for one in read_examples(prepared / f"{name}.jsonl")]
        for name in ("warmup", "train", "validation", "test")
    }
    seen = [text for texts in splits.values() for text in texts]
    assert all(splits.values())
    assert len(seen) == len(set(seen)) == len(read_jsonl(prepared / "problems.jsonl"))
    source = read_json(prepared / "source.json", dict)
    assert source["num_rows"] == len(seen) + source["drops"]["total"]


@pytest.mark.slow
def test_what_decides_is_shown_to_nobody(tiny_run: Path) -> None:
    for one in read_examples(tiny_run / "prepare" / "train.jsonl"):
        asked = "".join(str(message.text) for message in one.prompt)
        problem = read_problem(one)
        assert not any(test in asked for test in problem.hidden_tests)
    report = (tiny_run / "report.md").read_text(encoding="utf-8")
    assert "The executor of this run is a stub, not a model" in report
    assert "needed here" in report or "none is compared" in report


@pytest.mark.slow
def test_a_prompt_is_optimised_with_as_many_programs_as_grpo_had(tiny_run: Path) -> None:
    folder = tiny_run / "optimise_prompt"
    spent = read_json(tiny_run / "grpo" / "budget.json", dict)["num_samples"]
    found = read_json(folder / "search.json", dict)
    assert 0 < found["num_executions"] <= spent
    assert len(read_jsonl(folder / "trials.jsonl")) <= found["num_executions"]
    assert found["refused"] == {"lost_place": 1}
    pasted = yaml.safe_load((folder / "prompt.yaml").read_text(encoding="utf-8"))
    assert pasted == {"prompt": found["prompt"]}
    [told] = [one for one in read_policies(tiny_run).listed if one.name == "gepa"]
    assert (told.kind, told.trained_from) == ("prompted", "sft")
    assert told.budget == {"num_samples": found["num_executions"]}


@pytest.mark.slow
def test_rules_and_judge_are_compared_in_both_languages(tiny_run: Path) -> None:
    answers = [
        one
        for one in read_predictions(tiny_run / "evaluate" / "predictions.jsonl")
        if "answer" in one.fields
    ]
    assert {one.policy for one in answers} >= set(RIVALS)
    assert all(set(one.fields["opinions"]) == {"rule", "judge"} for one in answers)
    ruled = [one for one in answers if one.fields["opinions"]["rule"] is not None]
    assert ruled
    assert all((one.predicted == one.label) == one.fields["opinions"]["rule"] for one in ruled)
    sections = read_sections(tiny_run / "evaluate" / "sections.json")
    for language, title in (("en", "Rules and judge"), ("zh", "规则与裁判")):
        [found] = [one for one in sections if one.title == title]
        assert found.is_for(language)
        assert f"{len(answers)}" in found.text
        different = {(one.example_id, one.fields["answer"]) for one in answers}
        assert [table.rows[-1][1] for table in found.tables] == [f"{len(different)}"] * 2
    report = (tiny_run / "report.md").read_text(encoding="utf-8")
    assert "## Rules and judge" in report
    assert "规则与裁判" not in report


@pytest.mark.slow
def test_the_curves_have_both_rates_and_every_type(tiny_run: Path) -> None:
    rows = [row for row in read_jsonl(tiny_run / "grpo" / "metrics.jsonl") if "loss" in row]
    assert rows
    assert all({"reward/executed", "reward/correct"} <= set(row) for row in rows)
    for row in rows:
        facts = row["facts"]
        without = {name: one["num"] for name, one in facts["texts"].items() if "/" not in name}
        assert set(without) <= {"refused", "failed", "no value"}
        assert facts["shares"]["executed"][0] + sum(without.values()) == facts["num"] == 3 * 2
    counted = read_json(tiny_run / "grpo" / "judge.json", dict)
    assert sum(counted["reasons"].values()) > 0
    assert counted["deciding"]["mode"] == "rules_first"
