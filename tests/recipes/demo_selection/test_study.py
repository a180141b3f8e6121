"""The study of β: what may be compared, what may be recommended, and what is said of it."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from recorded_lists import POOL, make_entry, make_pointer
from study_runs import (
    NUM_ITEMS,
    PUBLISHED,
    SHOTS,
    SIZES,
    make_epoch,
    make_study_run,
)

from groupwise.core import EvaluationError, read_json, write_json, write_jsonl
from groupwise.evaluation.compare import compare_results
from groupwise.evaluation.report.comparison import ComparisonLayout
from groupwise.evaluation.report.phrases import LANGUAGES, Phrases, load_phrases
from groupwise_recipes.demo_selection.cells import Base, Cell, Subsets
from groupwise_recipes.demo_selection.conditions import COMPARED
from groupwise_recipes.demo_selection.published_files import read_published
from groupwise_recipes.demo_selection.study import page
from groupwise_recipes.demo_selection.study.notices import collect_notices, list_unlike, read_kl
from groupwise_recipes.demo_selection.study.page import (
    change_relatively,
    judge,
    list_reasons,
    write_study,
)
from groupwise_recipes.demo_selection.study.runs import (
    Epoch,
    make_study,
    read_arms,
    read_epochs,
)

SUBSETS = "other_subsets"
EVERY = len(SIZES) * len(SHOTS)
FALLING = tuple(one[:3] for one in PUBLISHED)
PHRASES = Phrases("en", own=Path(page.__file__).with_name("phrases.yaml"))


def make_arms(folder, *, seeds=(0,), betas=(0.12, 0.15), of=None, **same):
    """Return the study of runs of some β and seeds; ``of`` has what differs by β."""
    runs = [
        make_study_run(folder / f"{beta}-{seed}", beta=beta, seed=seed, **{**same, **own})
        for beta in betas
        for seed in seeds
        for own in [(of or {}).get(beta, {})]
    ]
    return make_study(read_arms(runs))


def name_notices(study, level=None):
    return [one.kind for one in collect_notices(study) if level in (None, one.level)]


def measure(study, arm, *place):
    cell = tuple(map(str, place))
    return study.tabulate((place[0],)).summarize(arm.name, cell).value


def subtract(study, first, second, epochs):
    """Return the comparison of two arms in the cells of some epochs."""
    names = [(first.name, second.name)]
    return compare_results(study.tabulate(epochs), pairs=names)


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """Two arms with one epoch, only to be looked at."""
    return make_arms(tmp_path_factory.mktemp("small"), epochs=FALLING[:1])


@pytest.mark.parametrize(("number", "kl", "ppo", "loss"), PUBLISHED)
def test_the_published_losses_are_ppo_and_beta_times_kl(number, kl, ppo, loss):
    epoch = Epoch(number, loss=loss, ppo_loss=ppo, kl=kl, beta=0.12)
    assert round(epoch.expected_loss, 5) == loss
    assert epoch.adds_up
    assert not replace(epoch, loss=loss + 1e-5).adds_up
    assert not replace(epoch, beta=0.15).adds_up


def test_a_loss_that_does_not_add_up_is_an_error(tmp_path):
    told = (PUBLISHED[0], (2, 0.08131, 0.00083, 0.0106), PUBLISHED[2])
    study = make_arms(tmp_path, of={0.12: {"epochs": told}, 0.15: {"epochs": FALLING}})
    (found,) = [one for one in collect_notices(study) if one.kind == "loss_differs"]
    assert (found.level, found.values["arm"], found.values["epoch"]) == ("error", "β = 0.12", 2)


@given(
    st.lists(
        st.tuples(st.floats(-5, 5), st.integers(1, 50), st.integers(0, 50)), min_size=1, max_size=6
    )
)
def test_rows_of_an_epoch_are_averaged_by_their_queries(tmp_path_factory, parts):
    rows = [
        {
            "step": number + 1,
            "epoch": 1.0 if number + 1 == len(parts) else round((number + 1) / len(parts), 4),
            "loss": loss,
            "num_groups": groups,
            "num_dead_groups": dead,
        }
        for number, (loss, groups, dead) in enumerate(parts)
    ]
    path = tmp_path_factory.mktemp("log") / "metrics.jsonl"
    write_jsonl(path, [*rows, {"step": 99, "epoch": 1.5, "loss": 7.0}])
    (found,) = read_epochs(path)  # The second epoch was interrupted.
    total = sum(groups for _, groups, _ in parts)
    assert found.loss == pytest.approx(sum(loss * groups for loss, groups, _ in parts) / total)
    assert (found.num_groups, found.num_dead_groups) == (total, sum(part[2] for part in parts))


def test_what_has_not_run_is_a_question_mark_and_counts_nowhere(tmp_path):
    left = ["grpo-epoch-1-shots-4", "grpo-epoch-3-shots-2"]
    study = make_arms(tmp_path, of={0.15: {"skipped": left}})
    low, high = study.arms
    assert measure(study, low, 1, SIZES[-1], 4) is not None
    assert measure(study, high, 1, SIZES[-1], 4) is None
    found = subtract(study, high, low, [1])
    (pair,) = found.pairs
    assert (sum(pair.counts), len(pair.gaps)) == (EVERY - len(SIZES), EVERY)
    assert judge(study).shots == (1, 3, 4)
    (notice,) = [one for one in collect_notices(study) if one.kind == "not_run"]
    assert notice.values == {"num": 2 * len(SIZES), "all": 2 * 4 * EVERY}
    (pair,) = subtract(study, high, low, study.epochs).pairs
    # Epochs that did not run the same cells have no trend.
    by_epoch, by_size, by_shots = pair.by_axis
    assert {row.value: row.trend is None for row in by_shots} == {
        "1": False,
        "2": True,
        "3": False,
        "4": True,
    }
    assert all(row.trend is None for row in by_size)
    assert {row.num_compared for row in by_size} == {4 * 3 - 2}
    assert pair.trends == (None, None, None)
    assert by_epoch[1].num_compared == EVERY


def test_a_subset_that_was_not_asked_as_a_whole_has_not_run(tmp_path):
    run = make_study_run(tmp_path / "run")
    path = run / "evaluate" / "cells" / "grpo-epoch-3-shots-2.jsonl"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))
    study = make_study(read_arms([run]))
    (arm,) = study.arms
    known = [measure(study, arm, 3, size, 2) is not None for size in SIZES]
    assert known == [True, True, False]
    assert judge(study).shots == (1, 3, 4)


@pytest.mark.parametrize(("epoch", "expected"), [(1, 0.0), (2, 1.0), (None, 1.0)])
def test_grpo_is_held_against_the_epoch_it_starts_from(small, epoch, expected):
    (run,) = small.arms[0].runs
    cells = {
        cell: {item: replace(row, accuracy=float(cell.epoch == 2)) for item, row in rows.items()}
        for cell, rows in run.cells.items()
    }
    run = replace(run, cells=cells, settings={**run.settings, "grpo_from_epoch": epoch})
    arm = replace(small.arms[0], runs=(run,))
    assert measure(make_study([arm]), arm, 0, SIZES[0], 1) == expected


def test_systems_of_a_run_are_measured_by_their_own_cells(small):
    (run,) = small.arms[0].runs
    rows = run.cells[Cell("nearest_both", 1)]
    told = {Cell("none", 0): 0.1, Cell("grpo_reversed", 3, 1): 0.4, Cell("mmices", 3): 0.7}
    cells = {
        cell: {item: replace(row, accuracy=share) for item, row in rows.items()}
        for cell, share in told.items()
    }
    arm = replace(small.arms[0], runs=(replace(run, cells=cells),))
    study = make_study([arm])
    assert study.measure_system(arm, "none", size=5, shots=4) == pytest.approx(0.1)
    assert study.measure_system(arm, "mmices", size=5, shots=4) is None
    assert study.measure_system(arm, "mmices", size=5, shots=3) == pytest.approx(0.7)
    found = study.measure_system(arm, "grpo_reversed", size=5, shots=3, epoch=1)
    assert found == pytest.approx(0.4)


def test_a_failed_evaluation_is_left_out_in_every_arm(tmp_path):
    def fail(system, epoch, shots, item):
        return None if system == "grpo" and (epoch, shots, item) == (1, 2, 0) else float(item == 0)

    def answer(system, epoch, shots, item):
        return float(item == 0)

    study = make_arms(tmp_path, of={0.12: {"accuracy": answer}, 0.15: {"accuracy": fail}})
    for arm in study.arms:
        assert measure(study, arm, 1, SIZES[0], 2) == 0
        assert measure(study, arm, 1, SIZES[0], 3) == 1 / SIZES[0]
    (found,) = [one for one in collect_notices(study) if one.kind == "failed_evaluations"]
    assert found.values == {"num": 1, "all": 2 * 4 * len(SHOTS) * NUM_ITEMS}


@settings(max_examples=20)
@given(st.lists(st.floats(0, 1), min_size=2, max_size=2))
def test_differences_turn_round_with_the_arms(small, shares):
    a, b = (set_accuracy(*one) for one in zip(small.arms, shares, strict=True))
    study = make_study([a, b])
    one, two = (subtract(study, *pair, [1]).pairs[0] for pair in ((a, b), (b, a)))
    assert one.mean == pytest.approx(shares[0] - shares[1])
    assert one.mean == pytest.approx(-two.mean)
    assert one.counts == (two.counts[1], two.counts[0], two.counts[2])


def set_accuracy(arm, share):
    (run,) = arm.runs
    cells = {
        cell: {item: replace(row, accuracy=share) for item, row in rows.items()}
        for cell, rows in run.cells.items()
        if cell.system == "grpo"
    }
    return replace(arm, runs=(replace(run, cells=cells),))


@pytest.mark.parametrize(
    ("before", "after", "found"),
    [(0.2, 0.1, -0.5), (-0.2, -0.1, 0.5), (0.0, 0.1, None), (None, 0.1, None), (0.1, None, None)],
)
def test_a_relative_change_needs_something_to_be_relative_to(before, after, found):
    assert change_relatively(before, after) == found


def alter(run, **changes):
    return replace(run, evaluated=replace(run.evaluated, **changes))


@pytest.mark.parametrize("name", [*COMPARED])
@pytest.mark.parametrize("value", ["another", None])
def test_arms_under_other_conditions_get_no_recommendation(small, name, value):
    (run,) = small.arms[1].runs
    conditions = {**run.evaluated.conditions, name: value}
    check_refused(small, alter(run, conditions=conditions), "other_condition")


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        (lambda run: alter(run, base=Base("RCE epoch 5", "e" * 32)), "other_base"),
        (lambda run: alter(run, base=None), "other_base"),
        (lambda run: alter(run, trained_shots=2), "other_length"),
        (lambda run: replace(run, settings={**run.settings, "rce.tau_end": 1}), "other_settings"),
        (lambda run: replace(run, settings={}), "other_settings"),
        (
            lambda run: replace(run, subsets=Subsets(True, 5, {"5": run.list_items(5)})),
            "other_subsets",
        ),
    ],
)
def test_arms_that_differ_in_more_than_beta_get_no_recommendation(small, change, kind):
    check_refused(small, change(small.arms[1].runs[0]), kind)


def check_refused(small, run, kind):
    study = make_study([small.arms[0], replace(small.arms[1], runs=(run,))])
    study = replace(study, arms=(study.arms[0], set_accuracy(study.arms[1], 1.0)))
    (found,) = list_unlike(study)
    assert (found.kind, found.level) == (kind, "error")
    assert collect_notices(study)[0] == found
    verdict = judge(study)
    assert (verdict.outcome, verdict.arm) == ("unlike", None)


def test_what_comes_from_outside_is_held_together_by_its_digest(tmp_path):
    found: list[list[str]] = []
    for digests in (("same", "same"), ("one", "two")):
        runs: list[Path] = []
        for beta, digest in zip((0.12, 0.15), digests, strict=True):
            run = make_study_run(tmp_path / f"{digest}-{beta}", beta=beta)
            manifest = read_json(run / "manifest.json", dict)
            manifest["config"]["data"] = {"questions": f"/home/{beta}"}
            manifest["inputs"] = {"data.questions": digest}
            write_json(run / "manifest.json", manifest)
            runs.append(run)
        found.append([one.kind for one in list_unlike(make_study(read_arms(runs)))])
    assert found == [[], ["other_settings"]]


def test_a_refusal_stands_at_the_top_with_the_command_that_makes_arms_comparable(tmp_path):
    study = make_arms(tmp_path, of={0.15: {"changes": {"conditions.prompt": "another"}}})
    for arm in study.arms:
        own = read_json(arm.runs[0].folder / "manifest.json", dict)
        own["command"] = ["groupwise", "run", "demo_selection", "--config", "mine/data.yaml"]
        own["command"] += ["--set", f"grpo.beta={arm.beta}", "--set=model.base=my base"]
        own["command"] += ["--out", "runs/one", "--set", "seed=3"]
        write_json(arm.runs[0].folder / "manifest.json", own)
    told = write_study([one.folder for arm in study.arms for one in arm.runs], tmp_path / "out")
    assert told[0].startswith("Error: β = 0.12 and β = 0.15 differ in more than β: prompt")
    assert "No recommendation" in told
    command = (
        "groupwise sweep demo_selection --config mine/data.yaml --set 'model.base=my base' "
        "--grid grpo.beta=0.12,0.15 --seeds 3"
    )
    assert any(line.endswith(command) for line in told)


def test_what_neither_arm_knows_cannot_be_compared(tmp_path):
    change = {"changes": {"conditions.prompt": None, "conditions.data": None}}
    study = make_arms(tmp_path, **change)
    assert name_notices(study, "error") == ["unknown_condition", "unknown_condition"]


def test_arms_that_differ_in_beta_alone_are_alike(tmp_path):
    assert list_unlike(make_arms(tmp_path, betas=(0.12, 0.15, 0.18))) == []


def test_training_on_one_published_file_and_comparing_with_the_other_is_refused(tmp_path):
    of = {}
    for beta, answer, pool in ((0.12, "blue", None), (0.15, "net", POOL)):
        pointers = [make_pointer([POOL[0], POOL[1]], answer, pointer_global=[POOL[0], POOL[1]])]
        if pool is not None:
            pointers = [make_pointer([0, 1], answer, pointer_global=[POOL[0], POOL[1]])]
        path = tmp_path / f"rl-{beta}.json"
        write_json(path, {"7": make_entry(7, pointers, pool), "_meta": {}})
        told = read_published(path).recording.describe()
        of[beta] = {"changes": {f"conditions.{name}": value for name, value in told.items()}}
    study = make_arms(tmp_path, of=of)
    things = {
        one.values["thing"].kind: one.kind for one in list_unlike(study) if "thing" in one.values
    }
    assert things["thing.data"] == things["thing.pools"] == "other_condition"
    assert things["thing.prompt"] == "unknown_condition"
    assert judge(study).outcome == "unlike"


def test_lists_that_are_all_the_same_are_named(tmp_path):
    study = make_arms(tmp_path, demos=lambda system, epoch, shots, item: [f"{item}"] * shots)
    warned = {one.kind: one.values for one in collect_notices(study) if one.level == "warning"}
    every = 3 * len(SHOTS) * NUM_ITEMS
    assert warned["nothing_changed"]["num"] == every
    assert warned["arms_alike"] == {"first": "β = 0.12", "second": "β = 0.15", "num": every}
    assert "other_answers" not in warned


def test_one_other_list_and_training_changed_something(tmp_path):
    def pick(system, epoch, shots, item):
        return ["other"] if (system, epoch, shots, item) == ("grpo", 2, 3, 7) else [str(item)]

    study = make_arms(tmp_path, of={0.12: {"demos": pick}, 0.15: {"demos": lambda *a: [str(a[3])]}})
    changed = [one.values["arm"] for one in collect_notices(study) if one.kind == "nothing_changed"]
    assert changed == ["β = 0.15"]
    assert "arms_alike" not in name_notices(study)


def test_the_order_of_a_list_counts(tmp_path):
    of = {0.12: {"demos": lambda *_: ["a", "b"]}, 0.15: {"demos": lambda *_: ["b", "a"]}}
    assert "arms_alike" not in name_notices(make_arms(tmp_path, of=of))


def test_the_same_list_with_two_answers_is_told(tmp_path):
    of = {0.12: {"accuracy": lambda *_: 1.0}, 0.15: {"accuracy": lambda *_: 0.0}}
    study = make_arms(tmp_path, of=of, demos=lambda *_: ["a"])
    assert "other_answers" in name_notices(study, "warning")


def test_epochs_of_one_arm_stand_apart(tmp_path):
    study = make_arms(tmp_path, of={0.15: {"epochs": FALLING[:2]}})
    low, high = study.arms
    assert study.epochs == (1, 2)
    assert (low.epochs, high.epochs) == ({1, 2, 3}, {1, 2})
    assert judge(study).epoch == 2
    write_study([one.folder for arm in study.arms for one in arm.runs], tmp_path / "out")
    text = (tmp_path / "out" / "study.md").read_text()
    accuracies, rest = text.split("## Accuracies")[1].split("## Differences")
    assert accuracies.count("| 3 |") == 2 * len(SIZES)
    assert accuracies.count("| 3 | 5 | ? |") == 1
    assert "| 3 | " not in rest.split("## What training changed")[0].split("### Every cell")[1]


def test_unfinished_epochs_are_told_against_the_plan(tmp_path):
    study = make_arms(tmp_path, of={0.15: {"changes": {"planned.grpo": 5}}})
    (found,) = [one for one in collect_notices(study) if one.kind == "unfinished"]
    assert found.values == {"arm": "β = 0.15", "phase": "GRPO", "done": 3, "planned": 5}


@pytest.mark.parametrize(
    ("epochs", "gap", "kind"),
    [
        (FALLING, None, "kl_falls"),
        (FALLING, 0.5, "kl_falls"),
        (FALLING, 0.0, "kl_falls_checked"),
        (tuple((n, 1 - one, ppo) for n, one, ppo in FALLING), 0.0, "kl_rises"),
        ((FALLING[0], (2, 0.01, 0.1), (3, 0.5, 0.1)), 0.0, "kl_wavers"),
    ],
)
def test_kl_is_read_with_care(tmp_path, epochs, gap, kind):
    study = make_arms(tmp_path, epochs=epochs, changes={"gap": gap})
    found = read_kl(study.arms[0])
    assert found.kind == kind
    assert (kind in name_notices(study, "warning")) == (kind == "kl_falls")
    assert ("off_policy" in name_notices(study, "error")) == (gap == 0.5)
    text = PHRASES.say(found)
    assert ("further from" in text) == (kind == "kl_rises")
    assert ("before RCE" in text) == (kind == "kl_falls")


@pytest.mark.parametrize(
    ("seeds", "gain", "outcome"),
    [
        ((0,), 0.4, "checkpoint"),
        ((0,), 0.0, "tied"),
        ((0, 1), 0.4, "two_seeds"),
        ((0, 1, 2), 0.4, "recommended"),
        ((0, 1, 2), 0.0, "tied"),
    ],
)
def test_a_beta_is_recommended_by_an_interval_over_seeds(tmp_path, seeds, gain, outcome):
    def draw(system, epoch, shots, item, seed):
        share = {"grpo": 0.3 + gain, "rce": 0.3}.get(system, 0.2)
        return float((7 * item + 3 * shots + 5 * seed) % 10 < 10 * share)

    runs = [
        make_study_run(
            tmp_path / f"{beta}-{seed}",
            beta=beta,
            seed=seed,
            accuracy=lambda system, *at, seed=seed, beta=beta: draw(
                system if beta == 0.15 else "rce", *at, seed
            ),
        )
        for beta in (0.12, 0.15)
        for seed in seeds
    ]
    study = make_study(read_arms(runs))
    verdict = judge(study)
    assert verdict.outcome == outcome
    assert verdict.arm == ("β = 0.15" if outcome in ("checkpoint", "recommended") else None)
    (found,) = verdict.differences
    assert found["of_method"] == (len(seeds) > 1)
    assert ("few_seeds" in name_notices(study)) == (len(seeds) < 3)
    told = " ".join(map(PHRASES.say, list_reasons(study, verdict, command="again")))
    assert ("Nothing is recommended of β" in told) == (outcome == "checkpoint")
    assert ("each interval for the method leaves 0 out" in told) == (outcome == "recommended")
    assert ("again" in told) == (outcome != "recommended")
    assert ("epoch-3.safetensors" in told) == (verdict.arm is not None)


def test_seeds_that_not_every_arm_has_are_left_out(tmp_path):
    runs = [make_study_run(tmp_path / f"a{seed}", beta=0.12, seed=seed) for seed in range(3)]
    runs += [make_study_run(tmp_path / f"b{seed}", beta=0.15, seed=seed) for seed in (1, 2)]
    study = make_study(read_arms(runs))
    assert [arm.seeds for arm in study.arms] == [(1, 2), (1, 2)]
    assert study.left_out == {"β = 0.12": (0,)}
    told = name_notices(study)
    assert told.index("seeds_left_out") < told.index("nested")  # Warnings stand before notes.


def test_arms_without_a_seed_in_common_are_not_subtracted(tmp_path):
    runs = [
        make_study_run(tmp_path / str(n), beta=beta, seed=n) for n, beta in enumerate((0.1, 0.2))
    ]
    study = make_study(read_arms(runs))
    assert name_notices(study, "error") == ["no_shared_seed"]
    assert judge(study).differences == ()
    found = subtract(study, *study.arms, study.epochs)
    layout = ComparisonLayout(found, PHRASES).show_differences()
    (table,) = layout[-1].tables
    assert {one.text for row in table.cells for one in row[2:]} == {"≠"}


def test_one_run_twice_is_refused(tmp_path):
    run = make_study_run(tmp_path / "run")
    with pytest.raises(EvaluationError, match="two with the same β and seed"):
        read_arms([run, run])


def test_dead_groups_are_counted(tmp_path):
    run = make_study_run(tmp_path / "run")
    rows = [{**make_epoch(0.12, *one), "num_dead_groups": 15} for one in FALLING]
    write_jsonl(run / "grpo" / "metrics.jsonl", rows)
    (found,) = [
        one for one in collect_notices(make_study(read_arms([run]))) if one.kind == "many_dead"
    ]
    assert found.values == {"arm": "β = 0.12", "phase": "GRPO", "share": 0.75}
    write_study([run], tmp_path / "out")
    assert "15 of 20" in (tmp_path / "out" / "study.md").read_text()


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_page_of_three_arms(tmp_path, language):
    study = make_arms(tmp_path, betas=(0.12, 0.15, 0.18))
    runs = [one.folder for arm in study.arms for one in arm.runs]
    write_study(runs, tmp_path / "out", language=language)
    html = (tmp_path / "out" / "study.html").read_text()
    for text in ("0.18 − β = 0.12", "0.18 − β = 0.15", "0.15 − β = 0.12"):
        assert text in html
    found = json.loads((tmp_path / "out" / "study.json").read_text())
    assert found["verdict"]["outcome"] == "tied"
    assert [len(arm["cells"]) for arm in found["arms"]] == [4 * EVERY] * 3


def test_every_sentence_is_used_and_every_used_one_is_there():
    source = "\n".join(path.read_text() for path in Path(page.__file__).parent.glob("*.py"))
    said = set(load_phrases(Path(page.__file__).parent / "phrases.yaml"))
    quoted = set(re.findall(r'"([\w.]+)"', source))
    prefixes = (
        "thing.",
        "why_",
        "run_",
        "part_",
        "lead_",
        "column_",
        "count.",
        "systems.",
        "axis.",
    )
    assert {key for key in said if not key.startswith(prefixes)} <= quoted
    assert set(re.findall(r'(?:Statement|_warn)\(\s*"([\w.]+)"', source)) <= said
