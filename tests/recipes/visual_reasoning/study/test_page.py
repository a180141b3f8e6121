"""The page of the studies: seeds together, unlike runs apart, what has not run and what cannot."""

import json
import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from run_folders import make_run

from groupwise.cli.main import app
from groupwise.core import EvaluationError, dump_config, list_effects, load_config
from groupwise.evaluation.metrics import compute_metrics
from groupwise.evaluation.predictions import Prediction
from groupwise.run.steps import describe_plan
from groupwise_recipes.visual_reasoning.box_rivals import ONE_PLACE, OTHER_SCENE
from groupwise_recipes.visual_reasoning.config import LABELS, VisualConfig
from groupwise_recipes.visual_reasoning.recipe import recipe
from groupwise_recipes.visual_reasoning.study import write_study
from groupwise_recipes.visual_reasoning.study_tables import FOLDER, NAMES, read_tables

CONFIGS = Path(__file__).parents[4] / "src/groupwise_recipes/visual_reasoning/configs"
STYLES = ("drawn_flat", "drawn_textured")
Change = Callable[[dict[str, Any]], dict[str, Any]]


def answer(
    accuracies: Mapping[str, float],
    seed: int,
    *,
    fields: Mapping[str, Sequence[str]] | None = None,
    num_items: int = 60,
) -> list[Prediction]:
    """Answers of policies, right by chance, another chance by seed; pairs are halves of one item.

    Args:
        accuracies: by policy.
        seed: of the run, which draws its own items.
        fields: what an item has, in turn.
        num_items: of each policy.
    """
    rows: list[Prediction] = []
    for policy, accuracy in accuracies.items():
        dice = random.Random(f"{policy} {seed}")
        for number in range(num_items):
            label = LABELS[number % 2]
            said = label if dice.random() < accuracy else LABELS[1 - number % 2]
            named = {
                name: values[number // 2 % len(values)] for name, values in (fields or {}).items()
            }
            rows.append(
                Prediction(
                    example_id=f"{seed}-{number:03}",
                    cluster=f"{seed}-{number // 2}",
                    split="test",
                    policy=policy,
                    label=label,
                    predicted=said,
                    text=f"<answer>{said}</answer>",
                    fields=named,
                    scores={"lenient_accuracy": 1.0},
                    pair=f"{seed}-{number // 2}",
                )
            )
    return rows


@cache
def describe_recipe() -> dict[str, Any]:
    """Return what every manifest says of settings and steps, with any config."""
    config = load_config(VisualConfig, CONFIGS / "transfer.yaml")
    effects = {path: asdict(one) for path, one in list_effects(VisualConfig).items()}
    plan = describe_plan(recipe.plan(config, Path("nowhere")))
    return {"manifest.json:effects": effects, "manifest.json:plan": plan}


def write_run(
    folder: Path,
    config: str,
    *settings: str,
    seed: int = 0,
    predictions: Sequence[Prediction],
    changes: Mapping[str, Any] | None = None,
    edit: Change | None = None,
) -> Path:
    """Write what a finished run of a config leaves behind."""
    loaded = load_config(
        VisualConfig, CONFIGS / f"{config}.yaml", overrides=[*settings, f"seed={seed}"]
    )
    values = dump_config(loaded)
    return make_run(
        folder,
        {
            "manifest.json:recipe": "visual_reasoning",
            "manifest.json:config": edit(values) if edit else values,
            **describe_recipe(),
            "evaluate/policies.json:one_place": asdict(ONE_PLACE),
            "evaluate/policies.json:other_scene": asdict(OTHER_SCENE),
            "manifest.json:seed": seed,
            **(changes or {}),
        },
        predictions=list(predictions),
    )


def write_transfer(
    folder: Path, *settings: str, seed: int = 0, accuracy: float = 0.7, **named: Any
) -> Path:
    policies = {"prompt": 0.5, "sft": accuracy, "grpo": 0.9}
    rows = answer(policies, seed, fields={"source": STYLES})
    return write_run(folder, "transfer", *settings, seed=seed, predictions=rows, **named)


def read_tables_of(out: Path) -> dict[str, dict[str, Any]]:
    """Return the last row of each name, by table."""
    found = json.loads((out / "study.json").read_text(encoding="utf-8"))["tables"]
    return {table: {one["row"]: one for one in rows} for table, rows in found.items()}


TYPED = (", published", "（已发表）")


def read_page(out: Path, *, first: int = 2, published: bool = False) -> dict[str, list[str]]:
    """Return the cells of each row of the Markdown, from the first after arm and seeds, by arm.

    Columns of published values are left out unless they are wanted.
    """
    text = (out / "study.md").read_text(encoding="utf-8")
    rows, kept = list[list[str]](), list[int]()
    for line in text.splitlines():
        if not line.startswith("| "):
            kept = []
            continue
        cells = line.strip("| ").split(" | ")
        own = [n for n, cell in enumerate(cells) if published or not cell.endswith(TYPED)]
        kept = kept or own
        rows.append([cells[n] for n in kept if n < len(cells)])
    return {row[0]: row[first:] for row in rows}


def read_first(out: Path, arm: str) -> list[str]:
    """Return the cells of the first row of an arm, behind arm and seeds."""
    lines = (out / "study.md").read_text(encoding="utf-8").splitlines()
    [line, *_] = [line for line in lines if line.startswith(f"| {arm} |")]
    return line.strip("| ").split(" | ")[2:]


def test_seeds_of_an_arm_are_one_row_with_an_interval_over_seeds(tmp_path: Path) -> None:
    runs = [write_transfer(tmp_path / f"r{seed}", seed=seed) for seed in range(3)]
    told = write_study(runs, tmp_path / "out")
    value = read_tables_of(tmp_path / "out")["transfer"]["sft_2"]["values"]["accuracy_source"]
    shares = [share for _, share in value["by_seed"]]
    assert [seed for seed, _ in value["by_seed"]] == [0, 1, 2]
    assert len(set(shares)) > 1
    assert value["value"] == pytest.approx(sum(shares) / 3)
    half = 4.303 * (sum((one - value["value"]) ** 2 for one in shares) / 2 / 3) ** 0.5
    assert value["low"] == pytest.approx(value["value"] - half, abs=1e-3)
    assert value["n"] == 30
    cell = read_page(tmp_path / "out")["SFT-2"][0]
    assert "n 30)" in cell
    assert read_page(tmp_path / "out", first=1)["SFT-2"][0] == "3\u00a0seeds (0, 1, 2)"
    assert not any("one seed" in line for line in told)


def test_differences_between_arms_are_paired_by_seed_and_item(tmp_path: Path) -> None:
    runs = [write_transfer(tmp_path / f"r{seed}", seed=seed) for seed in range(3)]
    longer = [
        write_transfer(tmp_path / f"l{seed}", "sft.epochs=50", seed=seed, accuracy=0.9)
        for seed in range(2)
    ]
    write_study([*runs, *longer], tmp_path / "out")
    found = json.loads((tmp_path / "out" / "study.json").read_text())
    pairs = {
        (one["first"], one["second"]): one["values"] for one in found["differences"]["transfer"]
    }
    trained = pairs["sft_2", "grpo"]["accuracy_source"]
    rows = read_tables_of(tmp_path / "out")["transfer"]
    values = [rows[name]["values"]["accuracy_source"]["value"] for name in ("sft_2", "grpo")]
    assert trained["estimate"] == pytest.approx(values[1] - values[0])
    assert trained["low"] < trained["estimate"] < trained["high"]
    assert pairs["sft_2", "sft_50"]["accuracy_source"]["num_seeds_a"] == 2
    assert pairs["sft_2", "sft_50"]["accuracy_source"]["low"] is None
    assert pairs["sft_2", "sft_ss"] == {}
    page = (tmp_path / "out" / "study.md").read_text(encoding="utf-8")
    assert "GRPO \u2212 SFT-2" in page
    assert "fewer than three seeds, no interval" in page
    assert "SFT-SS, trained on the target \u2212" not in page


def test_a_number_of_fewer_seeds_than_its_row_says_so(tmp_path: Path) -> None:
    runs = [write_transfer(tmp_path / f"r{seed}", seed=seed) for seed in range(2)]
    rows = answer({"sft": 0.7}, 2, fields={"source": STYLES[:1]})
    runs.append(write_run(tmp_path / "r2", "transfer", seed=2, predictions=rows))
    write_study(runs, tmp_path / "out")
    cells = read_page(tmp_path / "out")["SFT-2"]
    assert "seeds" not in cells[0]
    assert "n 30 · 2\u00a0seeds)" in cells[3]


def test_two_seeds_have_a_range_and_no_interval(tmp_path: Path) -> None:
    runs = [write_transfer(tmp_path / f"r{seed}", seed=seed) for seed in range(2)]
    write_study(runs, tmp_path / "out")
    value = read_tables_of(tmp_path / "out")["transfer"]["grpo"]["values"]["accuracy_target"]
    assert (value["low"], value["limit"]) == (None, "few_seeds")
    assert "by seed, no interval" in read_page(tmp_path / "out")["GRPO"][3]


def test_one_seed_has_the_interval_of_its_items_and_says_so(tmp_path: Path) -> None:
    run = write_transfer(tmp_path / "run")
    told = write_study([run], tmp_path / "out")
    rows = answer({"sft": 0.7}, 0, fields={"source": STYLES})
    expected = {
        one.measure: one for one in compute_metrics(rows, labels=LABELS, slices=("source",))
    }
    found = read_tables_of(tmp_path / "out")["transfer"]["sft_2"]["values"]
    for column, measure in (
        ("accuracy_source", "accuracy[source=drawn_flat]"),
        ("pairs_target", "pair_accuracy[source=drawn_textured]"),
    ):
        metric = expected[measure]
        ends = (found[column]["value"], found[column]["low"], found[column]["high"])
        assert ends == pytest.approx((metric.value, metric.low, metric.high))
        assert found[column]["n"] == metric.n
    assert any("one seed" in line for line in told)
    assert read_page(tmp_path / "out", first=1)["SFT-2"][0] == "1\u00a0seed (0)"


def test_what_has_not_run_is_a_question_mark(tmp_path: Path) -> None:
    run = write_transfer(tmp_path / "run")
    told = write_study([run], tmp_path / "out")
    page = read_page(tmp_path / "out")
    assert page["SFT-50"] == ["?"] * 6
    assert any("18 of 36 cells have not run" in line for line in told)


def test_a_set_that_was_not_asked_about_has_not_run(tmp_path: Path) -> None:
    rows = answer({"sft": 0.7, "other_scene": 0.5}, 0, fields={"source": ["drawn_flat"]})
    run = write_run(tmp_path / "run", "grounding", "sft.epochs=1", predictions=rows)
    write_study([run], tmp_path / "out")
    found = read_tables_of(tmp_path / "out")["grounding"]["sft_1"]["values"]
    states = {name: value["state"] for name, value in found.items()}
    assert states == {
        "accuracy_in": "done",
        "iou_in": "no_item",
        "accuracy_out": "waiting",
        "iou_out": "waiting",
    }
    assert read_page(tmp_path / "out")["SFT-1"][1:] == ["– (no item has it)", "?", "?"]


def test_an_arm_without_reasoning_has_dashes_and_faults_are_counted(tmp_path: Path) -> None:
    faults = [None, None, "contradiction", "missing_detail", None, "contradiction"]
    rows = [
        Prediction(
            **{
                **{name: getattr(one, name) for name in Prediction.__dataclass_fields__},
                "scores": {} if verdict == "skip" else {"alignment": float(verdict is None)},
                "fields": {"entailment": {"aligns": verdict is None, "type": verdict, "why": ""}},
            }
        )
        for number, one in enumerate(answer({"sft": 0.7}, 0))
        for verdict in [faults[number % 6]]
    ]
    rows += answer({"sft_control": 0.6}, 0)
    changes = {"evaluate/policies.json:sft_control/inapplicable": ["alignment"]}
    run = write_run(
        tmp_path / "run", "alignment", "rewards.alignment=0", predictions=rows, changes=changes
    )
    write_study([run], tmp_path / "out")
    page = read_page(tmp_path / "out")
    assert page["SFT control, without reasoning"][1:] == ["–"] * 5
    shares = [cell.split("\u00a0%")[0] for cell in page["SFT on reasoning"][1:]]
    assert shares == ["50.00", "33.33", "16.67", "0.00", "0.00"]
    assert all("n 60" in cell for cell in page["SFT on reasoning"])


def test_what_one_side_has_no_verdict_on_is_in_no_difference(tmp_path: Path) -> None:
    runs: list[Path] = []
    for seed in range(3):
        rows = [
            replace(one, scores={"alignment": float(one.policy == "grpo" or one.label == "True")})
            for one in answer({"sft": 0.7, "grpo": 0.7}, seed)
        ]
        # SFT has no verdict on two faulty ones, GRPO on two that SFT has right.
        for place in (1, 3, 60, 62):
            rows[place] = replace(rows[place], scores={})
        folder = tmp_path / f"r{seed}"
        runs.append(
            write_run(folder, "alignment", "rewards.alignment=0", seed=seed, predictions=rows)
        )
    write_study(runs, tmp_path / "out")
    found = json.loads((tmp_path / "out" / "study.json").read_text())["differences"]["alignment"]
    (values,) = [one["values"] for one in found if (one["first"], one["second"]) == ("sft", "grpo")]
    assert values["alignment"]["num_items"] == 56
    assert values["alignment"]["estimate"] == pytest.approx(28 / 56)
    assert values["accuracy"]["num_items"] == 60
    page = (tmp_path / "out" / "study.md").read_text(encoding="utf-8")
    assert "+50.00 (alike in every seed, no interval" in page


def test_arms_that_were_asked_other_items_are_not_compared(tmp_path: Path) -> None:
    """Neither over the items that both have by chance."""
    runs: list[Path] = []
    for seed in range(3):
        policies = {"sft": 0.7, "grpo": 0.9}
        rows = answer(policies, seed, fields={"source": STYLES})
        runs.append(write_run(tmp_path / f"r{seed}", "transfer", seed=seed, predictions=rows))
        rows = answer({"sft": 0.8}, seed, fields={"source": STYLES}, num_items=56)
        folder = tmp_path / f"l{seed}"
        runs.append(write_run(folder, "transfer", "sft.epochs=50", seed=seed, predictions=rows))
    write_study(runs, tmp_path / "out")
    found = json.loads((tmp_path / "out" / "study.json").read_text())["differences"]["transfer"]
    values = {(one["first"], one["second"]): one["values"] for one in found}
    assert values["sft_2", "sft_50"] == {}
    assert values["sft_2", "grpo"]["accuracy_source"]["num_seeds_a"] == 3


def test_a_run_that_fills_no_row_is_named(tmp_path: Path) -> None:
    rows = answer({"sft": 0.7, "grpo": 0.8}, 0, fields={"bias": ["aligned", "conflicting"]})
    run = write_run(tmp_path / "biased", "bias", predictions=rows)
    odd = write_run(tmp_path / "odd", "bias", "data.keep=0.8", predictions=rows)
    stray = write_run(tmp_path / "stray", "bias", "data.keep=null", predictions=rows)
    told = write_study([run, odd, stray], tmp_path / "out")
    (line,) = [line for line in told if str(odd) in line]
    assert line.startswith("Warning: Left out")
    assert str(stray) in line
    assert not any(str(run) in line for line in told)
    assert "Left out" in (tmp_path / "out" / "study.html").read_text(encoding="utf-8")


def test_runs_that_differ_in_more_than_the_seed_are_told_apart(tmp_path: Path) -> None:
    runs = [
        write_transfer(tmp_path / "slow", accuracy=0.5, seed=0),
        write_transfer(tmp_path / "fast", "sft.learning_rate=0.01", accuracy=1.0, seed=1),
        write_transfer(tmp_path / "slower", accuracy=0.5, seed=2),
    ]
    told = write_study(runs, tmp_path / "out")
    rows = json.loads((tmp_path / "out" / "study.json").read_text())["tables"]["transfer"]
    found = [one for one in rows if one["row"] == "sft_2"]
    assert [one["runs"] for one in found] == [[str(runs[0]), str(runs[2])], [str(runs[1])]]
    assert [one["apart"] for one in found] == [
        ["sft.learning_rate 0.0005"],
        ["sft.learning_rate 0.01"],
    ]
    assert found[1]["values"]["accuracy_source"]["value"] == 1.0
    assert "SFT-2 (sft.learning\\_rate 0.01)" in read_page(tmp_path / "out")
    (line,) = [line for line in told if "SFT-2" in line]
    assert "sft.learning_rate" in line
    # What does not stand behind the base does not tell it apart.
    assert [len(one["runs"]) for one in rows if one["row"] == "base"] == [3]


def test_settings_stand_first_in_what_tells_runs_apart(tmp_path: Path) -> None:
    changes = {"manifest.json:git_revision": "other"}
    runs = [
        write_transfer(tmp_path / "one"),
        write_transfer(tmp_path / "two", "sft.weight_decay=0.1", changes=changes),
    ]
    write_study(runs, tmp_path / "out")
    rows = json.loads((tmp_path / "out" / "study.json").read_text())["tables"]["transfer"]
    assert [one["apart"] for one in rows if one["row"] == "sft_2"] == [
        ["sft.weight_decay 0.01", "code/git_revision"],
        ["sft.weight_decay 0.1", "code/git_revision"],
    ]


def test_an_arm_of_several_runs_with_one_seed_is_counted_once(tmp_path: Path) -> None:
    first = write_transfer(tmp_path / "first")
    same = write_transfer(tmp_path / "same", "grpo.learning_rate=0.01")
    told = write_study([first, same], tmp_path / "out")
    found = read_tables_of(tmp_path / "out")["transfer"]["sft_2"]
    assert (found["runs"], found["repeated"]) == ([str(first)], [str(same)])
    assert len(found["values"]["accuracy_source"]["by_seed"]) == 1
    assert not any("SFT-2" in line for line in told)
    other = write_transfer(tmp_path / "other", "grpo.learning_rate=0.01", accuracy=0.2)
    told = write_study([first, other], tmp_path / "again")
    (line,) = [line for line in told if "SFT-2" in line]
    assert "with other answers" in line
    assert str(other) in line


def test_arms_that_rewards_are_not_behind_are_one_row_of_a_sweep_over_rewards(
    tmp_path: Path,
) -> None:
    policies = {"other_scene": 0.5, "one_place": 0.5, "prompt": 0.5, "sft": 0.7, "grpo": 0.8}
    rows = answer(policies, 0, fields={"source": STYLES})
    runs = [
        write_run(
            tmp_path / f"{form}-{iou}",
            "grounding",
            *("sft.epochs=1", f"rewards.format={form}", f"rewards.box_iou={iou}"),
            predictions=rows,
        )
        for form in (0, 0.1)
        for iou in (0, 0.6)
    ]
    told = write_study(runs, tmp_path / "out")
    rows_of = json.loads((tmp_path / "out" / "study.json").read_text())["tables"]["grounding"]
    sizes = {one["row"]: (len(one["runs"]), len(one["repeated"])) for one in rows_of}
    assert len(rows_of) == len(sizes)
    shared, own = (
        ("base", "other_scene", "one_place", "sft_1"),
        ("accuracy", "format", "iou", "format_iou"),
    )
    assert {sizes[name] for name in shared} == {(1, 3)}
    assert {sizes[f"grpo_{name}"] for name in own} == {(1, 0)}
    assert not any("differ" in line or "once" in line for line in told)


def test_one_study_is_shown_alone_and_several_with_all_five(tmp_path: Path) -> None:
    transfer = write_transfer(tmp_path / "transfer")
    rows = answer({"sft": 0.7, "grpo": 0.8}, 0, fields={"bias": ["aligned", "conflicting"]})
    bias = write_run(tmp_path / "bias", "bias", predictions=rows)
    write_study([transfer], tmp_path / "one")
    assert set(read_tables_of(tmp_path / "one")) == {"transfer"}
    write_study([transfer, bias], tmp_path / "all")
    assert tuple(read_tables_of(tmp_path / "all")) == NAMES


def test_the_chinese_page_has_the_same_numbers(tmp_path: Path) -> None:
    run = write_transfer(tmp_path / "run")
    told = write_study([run], tmp_path / "zh", language="zh")
    write_study([run], tmp_path / "en")
    english, chinese = read_page(tmp_path / "en"), read_page(tmp_path / "zh")
    assert next(iter(chinese)) == "组"
    assert chinese["组"][0] == "准确率（源）"
    assert [cell.split(" (")[0] for cell in chinese["GRPO"]] == [
        cell.split(" (")[0] for cell in english["GRPO"]
    ]
    assert read_page(tmp_path / "zh", first=1)["GRPO"][0] == "1\u00a0个种子 (0)"
    text = (tmp_path / "zh" / "study.md").read_text(encoding="utf-8")
    assert "从合成图片到真实图片" in text
    assert "Arm" not in text
    assert any(line.startswith("警告: 这些表中有 3") for line in told)


def test_published_values_stand_beside_with_the_difference_in_points(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = tmp_path / "tables"
    tables.mkdir()
    for name in NAMES:
        table = yaml.safe_load((FOLDER / f"{name}.yaml").read_text(encoding="utf-8"))
        if name == "transfer":
            rows = {row["name"]: row for row in table["rows"]}
            for row in table["rows"]:
                row.pop("published", None)
            rows["sft_2"]["published"] = {"accuracy_source": {"value": 40.0, "n": 300}}
            rows["sft_50"]["published"] = {"accuracy_source": {"value": 45.0}}
        text = yaml.safe_dump(table, allow_unicode=True)
        (tables / f"{name}.yaml").write_text(text, encoding="utf-8")
    run = write_transfer(tmp_path / "run", accuracy=1.0)
    monkeypatch.setattr("groupwise_recipes.visual_reasoning.study_tables.FOLDER", tables)
    write_study([run], tmp_path / "out")
    page = read_page(tmp_path / "out", published=True)
    assert page["Arm"][:3] == [
        "Accuracy, source",
        "Accuracy, source, published",
        "Pair accuracy, source",
    ]
    assert page["SFT-2"][1] == "40.00\u00a0% (+60.00 points measured − published · n 300)"
    assert page["SFT-50"][:2] == ["?", "45.00\u00a0% (n ?)"]
    assert page["GRPO"][1] == "?"


def test_a_published_checkpoint_fills_the_row_that_it_stands_for(tmp_path: Path) -> None:
    rows = answer({"prompt": 0.8, "majority": 0.5}, 0)
    settings = ("checkpoint=grpo", "rewards.alignment=0", "model.base=some/checkpoint")
    run = write_run(tmp_path / "run", "alignment", *settings, predictions=rows)
    write_study([run], tmp_path / "out")
    share = sum(one.label == one.predicted for one in rows if one.policy == "prompt") / 60
    points = f"{100 * share - 86.47:+.2f}".replace("-", "\u2212")
    cells = read_first(tmp_path / "out", "GRPO")
    assert cells[0].startswith(f"{100 * share:.2f}\u00a0%")
    assert cells[1] == f"86.47\u00a0% ({points} points measured − published · n 340)"
    assert read_first(tmp_path / "out", "Base")[0] == "?"
    base = write_run(
        tmp_path / "base", "alignment", "checkpoint=base", *settings[1:], predictions=rows
    )
    write_study([base], tmp_path / "base_out")
    assert read_first(tmp_path / "base_out", "Base")[0].startswith(f"{100 * share:.2f}")
    assert read_first(tmp_path / "base_out", "GRPO")[0] == "?"


def test_shares_and_points_have_the_two_decimals_of_published_values(tmp_path: Path) -> None:
    runs = [write_transfer(tmp_path / f"r{seed}", seed=seed) for seed in range(3)]
    two = [write_transfer(tmp_path / f"l{seed}", "sft.epochs=50", seed=seed) for seed in range(2)]
    write_study([*runs, *two], tmp_path / "out")
    lines = (tmp_path / "out" / "study.md").read_text(encoding="utf-8").splitlines()
    named = ("| Base", "| SFT-2", "| SFT-50", "| GRPO")
    shown = [line for line in lines if line.startswith(named)]
    assert any("−" in line and " to " in line for line in shown)
    assert any("by seed, no interval" in line for line in shown)
    numbers = [one for line in shown for one in re.findall(r"\d+\.\d+", line)]
    assert len(numbers) > 50
    assert [one for one in numbers if not re.fullmatch(r"\d+\.\d\d", one)] == []


def test_runs_of_no_study_and_unfinished_ones_are_refused(tmp_path: Path) -> None:
    rows = answer({"sft": 0.7}, 0)
    stray = write_run(tmp_path / "stray", "bias", "data.keep=null", predictions=rows)
    with pytest.raises(EvaluationError, match="none of these runs is of a study"):
        write_study([stray], tmp_path / "out")
    (stray / "evaluate" / "predictions.jsonl").unlink()
    with pytest.raises(EvaluationError, match="stray was not evaluated; run it to its end"):
        write_study([stray], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_the_command_line_reports_on_several_runs_and_on_one_with_a_folder(tmp_path: Path) -> None:
    runs = [str(write_transfer(tmp_path / f"r{seed}", seed=seed)) for seed in range(2)]
    out = tmp_path / "several"
    done = CliRunner().invoke(
        app, ["compare", "--together", *runs, "--out", str(out), "--language", "zh"]
    )
    assert (done.exit_code, (out / "study.md").is_file()) == (0, True), done.output
    out = tmp_path / "alone"
    done = CliRunner().invoke(app, ["compare", runs[0], "--out", str(out)])
    assert (done.exit_code, (out / "study.md").is_file()) == (0, True), done.output
    done = CliRunner().invoke(
        app,
        [
            "compare",
            "--together",
            *runs,
            "--metric",
            "test/accuracy",
            "--out",
            str(tmp_path / "seeds"),
        ],
    )
    assert (done.exit_code, (tmp_path / "seeds/comparison.md").is_file()) == (0, True), done.output


@pytest.mark.parametrize(
    ("study", "row", "column", "value", "n"),
    [
        ("alignment", "base", "accuracy", 70.59, 340),
        ("alignment", "grpo", "accuracy", 86.47, 340),
        ("grounding", "sft_1", "accuracy_out", 54.47, None),
        ("grounding", "grpo_format_iou", "accuracy_in", 88.3, None),
        ("transfer", "sft_ss", "accuracy_target", 76.5, None),
        ("bias", "grpo_strongly", "accuracy", 80.7, None),
        ("prompts", "words_5", "strict", 0, None),
    ],
)
def test_the_published_values_ship_with_the_tables(
    study: str, row: str, column: str, value: float, n: int | None
) -> None:
    (table,) = (one for one in read_tables() if one.name == study)
    (arm,) = (one for one in table.rows if one.name == row)
    assert (arm.published[column].value, arm.published[column].n) == (value, n)


def test_published_values_have_their_own_n(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", "alignment", predictions=answer({"prompt": 0.7}, 0))
    write_study([run], tmp_path / "out")
    text = (tmp_path / "out" / "study.md").read_text(encoding="utf-8")
    assert re.search(r"70\.59\u00a0% \([^)]*n 340\)", text)
    assert "88.29\u00a0% (n 350)" in text
