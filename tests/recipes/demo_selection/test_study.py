"""The study of β: what may be compared, what may be recommended, and what is said of it."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from compared_runs import render
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
from groupwise.evaluation.report import comparison
from groupwise.evaluation.report.phrases import LANGUAGES, Phrases, load_phrases
from groupwise.evaluation.statistics import MethodDifference
from groupwise_recipes.demo_selection.cells import Base, Subsets
from groupwise_recipes.demo_selection.conditions import COMPARED
from groupwise_recipes.demo_selection.published_files import read_published
from groupwise_recipes.demo_selection.study import (
    PHRASES,
    SUM,
    Study,
    adds_up,
    collect_notices,
    compare_settings,
    judge,
    list_reasons,
    read_epochs,
    read_study,
    write_study,
)

EVERY = len(SIZES) * len(SHOTS)
FALLING = tuple(one[:3] for one in PUBLISHED)


def make_arms(folder, *, seeds=(0,), betas=(0.12, 0.15), of=None, **same):
    """Return the study of runs of some β and seeds; ``of`` has what differs by β."""
    runs = [
        make_study_run(folder / f"{beta}-{seed}", beta=beta, seed=seed, **{**same, **own})
        for beta in betas
        for seed in seeds
        for own in [(of or {}).get(beta, {})]
    ]
    return read_study(runs)


def list_notices(study, kind=None, level=None):
    """Return what is said of a study, what every comparison says among it."""
    sides = compare_settings(study)
    every = compare_results(study.tabulate((0, *study.epochs)), pairs=[]).notices
    found = [*collect_notices(study, sides), *every]
    return [one for one in found if kind in (None, one.kind) and level in (None, one.level)]


def name_notices(study, level=None):
    return [one.kind for one in list_notices(study, level=level)]


def name_unlike(study):
    return {row.key for row in compare_settings(study) if row.kind == "confounding"}


def decide(study):
    return judge(study, compare_settings(study))[0]


def measure(study, arm, *place):
    cell = tuple(map(str, place))
    return study.tabulate((place[0],)).summarize(arm, cell).value


def subtract(study, first, second, epochs):
    """Return the comparison of two arms in the cells of some epochs."""
    return compare_results(study.tabulate(epochs), pairs=[(first, second)])


SHARED = Path(comparison.__file__).with_name("phrases.yaml")
LOW, HIGH = "β = 0.12", "β = 0.15"


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """Two arms with one epoch, only to be looked at."""
    return make_arms(tmp_path_factory.mktemp("small"), epochs=FALLING[:1])


def write_epoch(folder, beta, *epoch):
    """Return what is read of the log of one epoch."""
    write_jsonl(folder / "metrics.jsonl", [make_epoch(beta, *epoch)])
    return read_epochs(folder / "metrics.jsonl")


@pytest.mark.parametrize(("number", "kl", "ppo", "loss"), PUBLISHED)
def test_the_published_losses_are_ppo_and_beta_times_kl(tmp_path, number, kl, ppo, loss):
    found, other = (
        write_epoch(tmp_path / str(beta), beta, number, kl, ppo, loss) for beta in (0.12, 0.15)
    )
    assert round(found[number][SUM], 5) == loss
    assert adds_up(found[number])
    assert not adds_up({**found[number], "loss": loss + 1e-5})
    assert not adds_up(other[number])


def test_a_loss_that_does_not_add_up_is_an_error(tmp_path):
    told = (PUBLISHED[0], (2, 0.08131, 0.00083, 0.0106), PUBLISHED[2])
    study = make_arms(tmp_path, of={0.12: {"epochs": told}, 0.15: {"epochs": FALLING}})
    (found,) = list_notices(study, "loss_differs")
    assert (found.level, found.values["arm"], found.values["epoch"]) == ("error", "β = 0.12", 2)


def test_an_interrupted_epoch_is_left_out(tmp_path):
    rows = [make_epoch(0.12, *one) for one in FALLING[:2]]
    parts = [{**rows[0], "step": 5, "epoch": 0.5, "loss": 7.0}, {**rows[1], "epoch": 2.5}]
    write_jsonl(tmp_path / "metrics.jsonl", [parts[0], *rows, parts[1]])
    found = read_epochs(tmp_path / "metrics.jsonl")
    assert [*found] == [1, 2]
    assert found[1]["loss"] == rows[0]["loss"]
    assert read_epochs(tmp_path / "none.jsonl") == {}


def test_what_has_not_run_is_a_question_mark_and_counts_nowhere(tmp_path):
    left = ["grpo-epoch-1-shots-4", "grpo-epoch-3-shots-2"]
    study = make_arms(tmp_path, of={0.15: {"skipped": left}})
    low, high = study.arms
    assert measure(study, low, 1, SIZES[-1], 4) is not None
    assert measure(study, high, 1, SIZES[-1], 4) is None
    found = subtract(study, high, low, [1])
    (pair,) = found.pairs
    assert (sum(pair.counts), len(pair.gaps)) == (EVERY - len(SIZES), EVERY)
    assert study.find_shots() == [1, 3, 4]
    (notice,) = list_notices(study, "notice.missing")
    assert notice.values == {"num_missing": 2 * len(SIZES), "num_cells": 2 * 4 * EVERY}
    # Epochs that did not run the same cells have no trend.
    text = render(subtract(study, high, low, study.epochs))[1]
    by_shots = re.findall(r"^\| (\d) \| .+ \(over \d of 9\) \| (.+) \|$", text, re.MULTILINE)
    assert {shots: trend == "?" for shots, trend in by_shots} == {
        "1": False,
        "2": True,
        "3": False,
        "4": True,
    }
    by_size = re.findall(r"^\| (\d+) \| .+ \(over 10 of 12\) \| (.+) \|$", text, re.MULTILINE)
    assert by_size == [(str(size), "?") for size in SIZES]
    assert re.search(rf"^\| 2 \| .+ \(over {EVERY} of {EVERY}\) \|$", text, re.MULTILINE)


def test_a_subset_that_was_not_asked_as_a_whole_has_not_run(tmp_path):
    run = make_study_run(tmp_path / "run")
    path = run / "evaluate" / "cells" / "grpo-epoch-3-shots-2.jsonl"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))
    study = read_study([run])
    (arm,) = study.arms
    known = [measure(study, arm, 3, size, 2) is not None for size in SIZES]
    assert known == [True, True, False]
    assert study.find_shots() == [1, 3, 4]


@pytest.mark.parametrize(("epoch", "expected"), [(1, 0.0), (2, 1.0), (None, 1.0)])
def test_grpo_is_held_against_the_epoch_it_starts_from(small, epoch, expected):
    # Finished runs may say an epoch; there is no setting for it any more.
    run, _ = small.runs
    cells = {
        cell: {item: replace(row, accuracy=float(cell.epoch == 2)) for item, row in rows.items()}
        for cell, rows in run.cells.items()
    }
    run = replace(run, cells=cells, settings={**run.settings, "grpo_from_epoch": epoch})
    assert measure(Study((run,)), LOW, 0, SIZES[0], 1) == expected


def test_a_failed_evaluation_is_left_out_in_every_arm(tmp_path):
    def fail(system, epoch, shots, item):
        return None if system == "grpo" and (epoch, shots, item) == (1, 2, 0) else float(item == 0)

    def answer(system, epoch, shots, item):
        return float(item == 0)

    study = make_arms(tmp_path, of={0.12: {"accuracy": answer}, 0.15: {"accuracy": fail}})
    for arm in study.arms:
        assert measure(study, arm, 1, SIZES[0], 2) == 0
        assert measure(study, arm, 1, SIZES[0], 3) == 1 / SIZES[0]
    (found,) = list_notices(study, "failed_evaluations")
    assert found.values == {"num": 1, "all": 2 * 4 * len(SHOTS) * NUM_ITEMS}


@settings(max_examples=20)
@given(st.lists(st.floats(0, 1), min_size=2, max_size=2))
def test_differences_turn_round_with_the_arms(small, shares):
    runs = [set_accuracy(*one) for one in zip(small.runs, shares, strict=True)]
    study = Study(tuple(runs))
    one, two = (subtract(study, *pair, [1]).pairs[0] for pair in ((LOW, HIGH), (HIGH, LOW)))
    assert one.mean == pytest.approx(shares[0] - shares[1])
    assert one.mean == pytest.approx(-two.mean)
    assert one.counts == (two.counts[1], two.counts[0], two.counts[2])


def set_accuracy(run, share):
    cells = {
        cell: {item: replace(row, accuracy=share) for item, row in rows.items()}
        for cell, rows in run.cells.items()
        if cell.system == "grpo"
    }
    return replace(run, cells={**run.cells, **cells})


def alter(run, **changes):
    return replace(run, evaluated=replace(run.evaluated, **changes))


@pytest.mark.parametrize("name", [*COMPARED])
@pytest.mark.parametrize("value", ["another", None])
def test_arms_under_other_conditions_get_no_recommendation(small, name, value):
    run = small.runs[1]
    conditions = {**run.evaluated.conditions, name: value}
    check_refused(small, alter(run, conditions=conditions), name)


@pytest.mark.parametrize(
    ("change", "keys"),
    [
        (lambda run: alter(run, base=Base("RCE epoch 5", "e" * 32)), ["start of GRPO"]),
        (lambda run: alter(run, base=None), ["start of GRPO"]),
        (lambda run: alter(run, trained_shots=2), ["shots in training"]),
        (
            lambda run: replace(run, settings={**run.settings, "rce.tau_end": 1}),
            ["rce.tau_end"],
        ),
        (lambda run: replace(run, settings={}), ["grpo.learning_rate", "rce.epochs"]),
        (
            lambda run: replace(run, subsets=Subsets(True, 5, {"5": run.subsets.subsets["5"]})),
            ["10", "20"],
        ),
    ],
)
def test_arms_that_differ_in_more_than_beta_get_no_recommendation(small, change, keys):
    check_refused(small, change(small.runs[1]), *keys)


def check_refused(small, run, *keys):
    study = Study((small.runs[0], set_accuracy(run, 1.0)))
    assert name_unlike(study) == set(keys)
    told = [one for one in list_notices(study) if "key" in one.values]
    assert [one.values["key"] for one in told] == sorted(keys)
    assert {one.level for one in told} == {"error"}
    comparison = decide(study)
    assert comparison.recommended is None
    assert "reason.unfair" in [one.kind for one in comparison.reasons]


def test_what_comes_from_outside_is_held_together_by_its_digest(tmp_path):
    found: list[set[str]] = []
    for digests in (("same", "same"), ("one", "two")):
        runs: list[Path] = []
        for beta, digest in zip((0.12, 0.15), digests, strict=True):
            run = make_study_run(tmp_path / f"{digest}-{beta}", beta=beta)
            manifest = read_json(run / "manifest.json", dict)
            manifest["config"]["data"] = {"questions": f"/home/{beta}"}
            manifest["inputs"] = {"data.questions": digest}
            write_json(run / "manifest.json", manifest)
            runs.append(run)
        found.append(name_unlike(read_study(runs)))
    assert found == [set(), {"data.questions"}]


def test_a_refusal_stands_at_the_top(tmp_path):
    study = make_arms(tmp_path, of={0.15: {"changes": {"conditions.prompt": "another"}}})
    told = write_study([run.folder for run in study.runs], tmp_path / "out")
    ending = r"against another\. A difference between arms cannot be put down to β\."
    assert re.fullmatch(rf"Error: .+prompt: q+ {ending}", told[0])
    assert "No recommendation" in told


def test_what_neither_arm_knows_cannot_be_compared(tmp_path):
    change = {"changes": {"conditions.prompt": None, "conditions.data": None}}
    study = make_arms(tmp_path, **change)
    assert name_unlike(study) == {"prompt", "data"}
    assert name_notices(study, "error") == ["notice.gate", "notice.gate"]


def test_arms_that_differ_in_beta_alone_are_alike(tmp_path):
    assert name_unlike(make_arms(tmp_path, betas=(0.12, 0.15, 0.18))) == set()


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
    kinds = {one.values["key"]: one.kind for one in list_notices(study, level="error")}
    assert kinds["data"] == kinds["pools"] == "notice.confounding"
    assert kinds["prompt"] == "notice.gate"
    assert decide(study).recommended is None


def test_lists_that_are_all_the_same_are_named(tmp_path):
    study = make_arms(tmp_path, demos=lambda system, epoch, shots, item: [f"{item}"] * shots)
    warned = {one.kind: one.values for one in list_notices(study, level="warning")}
    every = 3 * len(SHOTS) * NUM_ITEMS
    assert warned["nothing_changed"]["num"] == every
    assert warned["arms_alike"] == {"arms": "β = 0.15, β = 0.12", "num": every}


def test_one_other_list_and_training_changed_something(tmp_path):
    def pick(system, epoch, shots, item):
        return ["other"] if (system, epoch, shots, item) == ("grpo", 2, 3, 7) else [str(item)]

    study = make_arms(tmp_path, of={0.12: {"demos": pick}, 0.15: {"demos": lambda *a: [str(a[3])]}})
    changed = [one.values["arms"] for one in list_notices(study, "nothing_changed")]
    assert changed == ["β = 0.15"]
    assert "arms_alike" not in name_notices(study)


def test_the_order_of_a_list_counts(tmp_path):
    of = {0.12: {"demos": lambda *_: ["a", "b"]}, 0.15: {"demos": lambda *_: ["b", "a"]}}
    assert "arms_alike" not in name_notices(make_arms(tmp_path, of=of))


def test_epochs_of_one_arm_stand_apart(tmp_path):
    study = make_arms(tmp_path, of={0.15: {"epochs": FALLING[:2]}})
    assert study.epochs == [1, 2]
    finished = [set(run.training["grpo"]) for run in study.runs]
    assert finished == [{1, 2, 3}, {1, 2}]
    (compared, *_) = list_reasons(study, decide(study))
    assert compared.values["epoch"] == 2
    write_study([run.folder for run in study.runs], tmp_path / "out")
    text = (tmp_path / "out" / "study.md").read_text()
    accuracies, rest = text.split("## Values")[1].split("## Differences in every cell")
    assert accuracies.count("| 3 |") == 2 * len(SIZES)
    assert accuracies.count("| 3 | 5 | ? |") == 1
    assert "| 3 | " not in rest.split("## What training changed")[0].split("### Every cell")[1]


def test_unfinished_epochs_are_told_against_the_plan(tmp_path):
    study = make_arms(tmp_path, of={0.15: {"changes": {"planned.grpo": 5}}})
    (found,) = list_notices(study, "unfinished")
    assert found.values == {"arm": "β = 0.15", "phase": "GRPO", "done": 3, "planned": 5}


@pytest.mark.parametrize(
    ("epochs", "gap", "is_warned"),
    [
        (FALLING, None, True),
        (FALLING, 0.5, True),
        (FALLING, 0.0, False),
        (tuple((n, 1 - one, ppo) for n, one, ppo in FALLING), None, False),
        ((FALLING[0], (2, 0.01, 0.1), (3, 0.5, 0.1)), None, False),
    ],
)
def test_kl_is_read_with_care(tmp_path, epochs, gap, is_warned):
    study = make_arms(tmp_path, epochs=epochs, changes={"gap": gap})
    found = list_notices(study, "kl_falls", "warning")
    assert [one.values["arm"] for one in found] == [LOW, HIGH] * is_warned
    assert ("off_policy" in name_notices(study, "error")) == (gap == 0.5)
    for one in found:
        text = Phrases("en", own=PHRASES).say(one)
        assert "does not mean that the selector moves away" in text
        assert "before RCE" in text


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
    study = read_study(runs)
    comparison = decide(study)
    is_better = outcome in ("checkpoint", "recommended")
    assert comparison.recommended == (HIGH if is_better else None)
    (gap,) = comparison.pairs[0].gaps
    assert isinstance(gap.test, MethodDifference) == (len(seeds) > 1)
    assert gap.is_clear == is_better
    reasons = [one.kind for one in list_reasons(study, comparison)]
    assert ("reason.not_clear" in reasons) == (outcome == "two_seeds")
    limits = [one.kind for one in comparison.notices]
    assert ("notice.few_seeds" in limits) == (outcome == "two_seeds")
    told = " ".join(write_study([run.folder for run in study.runs], tmp_path / "out"))
    assert ("Recommended of these checkpoints: β = 0.15" in told) == (outcome == "checkpoint")
    assert ("Recommended: β = 0.15" in told) == (outcome == "recommended")
    assert ("All of this is about these checkpoints" in told) == (len(seeds) == 1)
    assert ("seeds and clusters; p\u00a0<\u00a00.001 after Holm" in told) == (
        outcome == "recommended"
    )
    assert ("epoch-3.safetensors" in told) == is_better


def test_a_beta_that_is_worse_than_its_start_is_seen_and_not_recommended(tmp_path):
    def harm(system, epoch, shots, item):
        return float((7 * item + 3 * shots) % 10 < (2 if system == "grpo" else 8))

    def harm_less(system, epoch, shots, item):
        return float((7 * item + 3 * shots) % 10 < (6 if system == "grpo" else 8))

    of = {0.12: {"accuracy": harm}, 0.15: {"accuracy": harm_less}}
    study = make_arms(tmp_path, of=of)
    assert "reason.not_above_baseline" in [one.kind for one in decide(study).reasons]
    told = write_study([run.folder for run in study.runs], tmp_path / "out")
    assert any("β = 0.12 − RCE (β = 0.12): −60.0 points" in one for one in told)
    assert any("RCE (β = 0.15) is the better" in one for one in told)


def test_seeds_that_not_every_arm_has_are_left_out(tmp_path):
    runs = [make_study_run(tmp_path / f"a{seed}", beta=0.12, seed=seed) for seed in range(3)]
    runs += [make_study_run(tmp_path / f"b{seed}", beta=0.15, seed=seed) for seed in (1, 2)]
    study = read_study(runs)
    assert [[run.seed for run in own] for own in study.arms.values()] == [[1, 2], [1, 2]]
    assert [(run.arm, run.seed) for run in study.left_out] == [("β = 0.12", 0)]
    told = write_study(runs, tmp_path / "out")  # Warnings stand before notes.
    left = next(place for place, one in enumerate(told) if one.endswith("seed: β = 0.12, seed 0."))
    assert left < next(place for place, one in enumerate(told) if "nested" in one)


def test_arms_without_a_seed_in_common_are_refused(tmp_path):
    runs = [
        make_study_run(tmp_path / str(n), beta=beta, seed=n) for n, beta in enumerate((0.1, 0.2))
    ]
    with pytest.raises(EvaluationError, match="no seed is common to all β; got"):
        read_study(runs)


def test_one_run_twice_is_refused(tmp_path):
    run = make_study_run(tmp_path / "run")
    with pytest.raises(EvaluationError, match="two with the same β and seed"):
        read_study([run, run])


def test_dead_groups_are_counted(tmp_path):
    run = make_study_run(tmp_path / "run")
    rows = [{**make_epoch(0.12, *one), "dead_groups": 0.75} for one in FALLING]
    write_jsonl(run / "grpo" / "metrics.jsonl", rows)
    (found,) = list_notices(read_study([run]), "many_dead")
    assert found.values == {"arm": "β = 0.12", "phase": "GRPO", "share": 0.75}
    write_study([run], tmp_path / "out")
    assert "| Dead groups |" in (text := (tmp_path / "out" / "study.md").read_text())
    assert text.count("| 0.75 |") == len(FALLING)


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_page_of_three_arms(tmp_path, language):
    study = make_arms(tmp_path, betas=(0.12, 0.15, 0.18))
    write_study([run.folder for run in study.runs], tmp_path / "out", language=language)
    html = (tmp_path / "out" / "study.html").read_text()
    for text in ("0.18 − β = 0.12", "0.18 − β = 0.15", "0.15 − β = 0.12"):
        assert text in html
    found = json.loads((tmp_path / "out" / "study.json").read_text())
    assert found["recommended"] is None
    assert len(found["accuracies"]) == 3 * 4 * EVERY


def test_every_sentence_is_used_and_every_used_one_is_there():
    sources = [PHRASES.with_name(f"{name}.py").read_text() for name in ("study", "results")]
    said, source = set(load_phrases(PHRASES)), "\n".join(sources)
    quoted = set(re.findall(r'"([\w.]+)"', source))
    prefixes = ("count.", "situations.", "axis.", "series.", "way.", "note.")
    leads = {key for key in said if key.removesuffix("_lead") in quoted}
    assert {key for key in said - leads if not key.startswith(prefixes)} <= quoted
    assert set(re.findall(r'(?:Statement|warn|\.say)\(\s*"([\w.]+)"', source)) <= {
        *said,
        *load_phrases(SHARED),
    }


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_study_without_an_epoch_of_all_arms_is_written(tmp_path, language):
    study = make_arms(tmp_path, epochs=FALLING[:1], of={0.15: {"epochs": ()}})
    assert not study.epochs
    told = write_study([run.folder for run in study.runs], tmp_path / "out", language=language)
    said = {"en": "at least one of them has not run", "zh": "至少有一方没有运行"}
    assert any(said[language] in line for line in told)
    assert (tmp_path / "out" / "study.html").is_file()
