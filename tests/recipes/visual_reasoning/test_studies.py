"""The studies of bias and transfer: tiny runs, drawn and on made published sets, and audits."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from command_line import CommandLine
from recipe_runs import TINY_SCENES as TINY
from recipe_runs import RecipeJob
from statement_sets import write_rel3d, write_spatialsense, write_vsr

from groupwise.core import Completion, Example, load_config, read_json
from groupwise.rewards import RewardCase, audit_rewards
from groupwise_recipes.visual_reasoning.asking import prepare_rows
from groupwise_recipes.visual_reasoning.config import VisualConfig
from groupwise_recipes.visual_reasoning.study_tables import StudyTable, read_tables
from groupwise_recipes.visual_reasoning.task import TASK

CONFIGS = Path(__file__).parents[3] / "src/groupwise_recipes/visual_reasoning/configs"
Scorer = Callable[[Example, Completion], float]


def is_written_so(case: RewardCase) -> Scorer:
    return lambda example, answer: float(answer.text == case.write(example, str(example.label)))


def is_named(case: RewardCase) -> Scorer:
    return lambda example, answer: float(str(example.label) in answer.text)


@pytest.mark.parametrize("study", ["bias", pytest.param("transfer", marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("make", "fault"),
    [(is_written_so, "reward/stricter-than-metric"), (is_named, "reward/laxer-than-metric")],
)
def test_rewards_that_differ_from_the_metric_are_refused(
    tmp_path: Path, study: str, make: Callable[[RewardCase], Scorer], fault: str
) -> None:
    overrides = ["data.drawn.num_pairs=12", "data.drawn.num_test_pairs=3"]
    overrides += ["model.base=tiny-qwen2.5-vl"]
    config = load_config(VisualConfig, CONFIGS / f"{study}.yaml", overrides=overrides)
    prepare_rows(config, tmp_path)
    case = TASK.make_case(config, tmp_path)
    assert audit_rewards(case).errors == ()
    errors = audit_rewards(replace(case, rewards=make(case))).errors
    assert fault in {finding.name for finding in errors}


def run_tiny(study: str, folder: Path, **settings: object) -> set[str]:
    """Run a study to its end and return the names of its metrics."""
    run = RecipeJob("visual_reasoning", {**TINY, **settings}, study).finish(folder / "run")
    return {row["name"] for row in read_json(run / "evaluate" / "metrics.json", list)}


@pytest.mark.parametrize("study", ["bias", "transfer"])
def test_the_real_study_is_previewed_without_its_model(study: str) -> None:
    for overrides in ([], ["data.keep=0"], ["inputs=[depth, boxes]", "sft.epochs=50"]):
        real = CONFIGS / f"{study}-qwen2.5-vl-3b.yaml"
        preview = TASK.preview(load_config(VisualConfig, real, overrides=overrides))
        assert preview.problems == []


@pytest.mark.slow
@pytest.mark.parametrize("table", read_tables(), ids=lambda table: table.name)
def test_no_arm_of_a_table_is_refused(table: StudyTable, vision_folder: Path) -> None:
    """Prompts of some arms are longer than those of the others."""
    base = "tiny-qwen2.5-vl" if table.name == "grounding" else vision_folder
    small = [f"model.base={base}", "data.drawn.num_pairs=40", "data.drawn.num_test_pairs=8"]
    arms = {(*table.settings, *row.settings) for row in table.rows}
    for settings in sorted(arms):
        if not any(one.startswith("sft.traces=") for one in settings):  # of a finished run
            config = CONFIGS / f"{table.config}.yaml"
            preview = TASK.preview(load_config(VisualConfig, config, overrides=[*settings, *small]))
            assert preview.problems == []


def test_data_that_are_not_there_are_named_in_a_sentence(
    command_line: CommandLine, tmp_path: Path
) -> None:
    settings = {"data.drawn": "null", "data.vsr.path": tmp_path / "nowhere"}
    job = RecipeJob("visual_reasoning", settings, "bias")
    done = command_line(*job.list_arguments(tmp_path / "run"))
    assert done.returncode == 2
    assert "nowhere" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_biased_training_is_told_by_what_the_bias_says(tmp_path: Path) -> None:
    names = run_tiny("bias", tmp_path)
    for policy in ("majority", "sft", "grpo"):
        assert {f"{policy}/accuracy[bias={side}]" for side in ("aligned", "conflicting")} <= names
    found = read_json(tmp_path / "run" / "audit" / "audit.json", dict)["findings"]
    assert "text_probe_of_relation_in_sample" in {one["name"] for one in found}
    assert "aligned" in (tmp_path / "run" / "report.md").read_text("utf-8")


@pytest.mark.slow
def test_transfer_is_told_by_test_set(tmp_path: Path) -> None:
    names = run_tiny("transfer", tmp_path)
    for measure in ("accuracy", "pair_accuracy", "invalid_rate"):
        for style in ("flat", "textured"):
            assert {f"{p}/{measure}[source=drawn_{style}]" for p in ("sft", "grpo")} <= names
    page = (tmp_path / "run" / "report.md").read_text("utf-8")
    assert "Each test set by itself" in page
    assert "Pair accuracy on drawn\\_textured" in page


@pytest.mark.slow
def test_a_published_checkpoint_is_measured_by_one_command(
    vision_folder: Path, command_line: CommandLine
) -> None:
    small = {name: value for name, value in TINY.items() if name.startswith(("data", "eval"))}
    settings = {**small, "checkpoint": "grpo", "rewards.alignment": 0}
    words = [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]
    done = command_line(
        *("sweep", "visual_reasoning", "--config", "alignment", *words),
        *("--grid", f"model.base={vision_folder}", "--out", "study"),
    )
    assert done.returncode == 0, done.stderr
    [run] = [path.parent for path in Path("study").glob("**/evaluate")]
    assert not {"sft", "grpo", "sft_control"} & {path.name for path in run.iterdir()}
    page = (run / "report.md").read_text(encoding="utf-8")
    assert "Published checkpoint" in page
    [line, *_] = [
        line
        for line in Path("study/study.md").read_text(encoding="utf-8").splitlines()
        if line.startswith("| GRPO |")
    ]
    assert "| 0.00\u00a0% (0.00–" in line
    assert "86.47\u00a0% (−86.47 points measured − published · n 340" in line
    done = command_line("run", "visual_reasoning", "--config", "alignment", *words, "--dry-run")
    assert "grpo steps" not in done.stdout


def run_published(study: str, folder: Path, settings: dict[str, object]) -> dict[str, int]:
    """Run a study on made sets, tiny, and return the number of items by metric."""
    tiny = {name: value for name, value in TINY.items() if "drawn" not in name}
    shared = {"data.drawn": "null", "sft.targets": "answer", "data.budget.max_prompt_tokens": 256}
    job = RecipeJob("visual_reasoning", {**tiny, **shared, **settings}, study)
    run = job.finish(folder / "run")
    rows = read_json(run / "evaluate" / "metrics.json", list)
    return {row["name"]: row["n"] for row in rows}


@pytest.mark.slow
@pytest.mark.parametrize(("keep", "num_dropped"), [("0.6", 9), ("0", 18)])
def test_biased_vsr_runs_with_pictures(tmp_path: Path, keep: str, num_dropped: int) -> None:
    settings = write_vsr(tmp_path / "vsr", num_train=54, num_others=18)
    sizes = run_published("bias", tmp_path, {**settings, "data.keep": keep})
    assert sizes["grpo/accuracy[bias=aligned]"] == 12
    assert sizes["grpo/accuracy[bias=conflicting]"] == 6
    drops = read_json(tmp_path / "run" / "prepare" / "source.json", dict)["drops"]
    assert list(drops["counts"].values()) == [num_dropped]


@pytest.mark.slow
@pytest.mark.parametrize("inputs", ["[]", "[boxes]", "[depth, boxes]"])
def test_rel3d_to_spatialsense_runs_with_pictures(tmp_path: Path, inputs: str) -> None:
    settings = write_rel3d(tmp_path / "rel3d", num_train=24, num_others=6)
    settings |= write_spatialsense(tmp_path / "sense", num_pictures=6)
    splits = {"data.spatialsense.splits": "{test: test}", "inputs": inputs}
    sizes = run_published("transfer", tmp_path, {**settings, **splits})
    assert sizes["grpo/accuracy[source=rel3d]"] == 12
    assert sizes["grpo/pair_accuracy[source=rel3d]"] == 6
    assert "grpo/pair_accuracy[source=spatialsense]" not in sizes
    has_photos = "grpo/accuracy[source=spatialsense]" in sizes
    assert has_photos == ("depth" not in inputs)
    drops = read_json(tmp_path / "run" / "prepare" / "source.json", dict)["drops"]["counts"]
    assert drops == ({} if has_photos else {"no depth picture": 12})
