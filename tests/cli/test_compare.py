"""``compare`` and ``report`` as commands: files, what they print, and sentences for mistakes."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from command_line import CommandLine
from compared_runs import make_answers
from run_folders import VARIED, make_run

from groupwise.core import write_json, write_text

PROGRAM = (sys.executable, "-m", "groupwise.cli")


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """Two fair runs of different betas, a worse and a better one."""
    make_run(tmp_path / "runs/a", predictions=make_answers(0.6))
    make_run(tmp_path / "runs/b", VARIED, predictions=make_answers(0.95))
    return tmp_path / "runs"


class TestCompare:
    def test_a_fair_pair_is_recommended_from_by_a_real_process(self, runs: Path) -> None:
        done = subprocess.run(
            [*PROGRAM, "compare", "runs/a", "runs/b", "--factor", "grpo.beta"],
            cwd=runs.parent,
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, "")
        assert "Recommended of these checkpoints: b" in done.stdout
        folder = runs / "compare-a-b"
        assert done.stdout.splitlines()[-1] == "report: runs/compare-a-b/comparison.html"
        kinds = sorted(path.suffix for path in folder.glob("comparison.*"))
        assert kinds == [".html", ".json", ".md"]
        assert json.loads((folder / "comparison.json").read_text())["table"]["is_fair"]

    def test_what_is_not_named_as_varying_confounds(
        self, runs: Path, command_line: CommandLine
    ) -> None:
        done = command_line.succeed(
            "compare", "runs/a", "runs/b", "--language", "zh", "--out", "out"
        )
        assert done.stdout.startswith("错误: config/grpo.beta：0.12 对 0.15")
        assert "不作推荐" in done.stdout
        assert (runs.parent / "out/comparison.html").is_file()

    def test_two_policies_of_one_run(self, runs: Path, command_line: CommandLine) -> None:
        command_line.succeed("compare", "runs/a:sft", "runs/a:grpo", "--out", "out")
        values = json.loads((runs.parent / "out/comparison.json").read_text())
        assert values["table"]["is_fair"]
        names = [one["system"] for one in values["table"]["results"]]
        assert names == ["a:sft", "a:grpo"]

    def test_another_measure(self, runs: Path, command_line: CommandLine) -> None:
        metric = ("--metric", "test/recall:on-task")
        command_line.succeed("compare", "runs/a", "runs/b", *metric, "--out", "out")
        values = json.loads((runs.parent / "out/comparison.json").read_text())
        assert (values["table"]["measure"]["name"], values["cells"][0]["n"]) == (
            "recall:on-task",
            120,
        )

    @pytest.mark.parametrize(
        ("arguments", "words"),
        [
            (["runs/a:grpo"], "or two runs to compare"),
            (["runs/a", "runs/a"], "a run is named twice"),
            (["runs/a", "runs/none"], "runs/none"),
            (["runs/a", "runs/b:ppo"], "ppo"),
            (["runs/a", "runs/b", "--metric", "accuracy"], "SPLIT/MEASURE"),
            (["runs/a", "runs/b", "--metric", "test/acuracy"], "did you mean 'accuracy'"),
            (["runs/a", "runs/b", "--metric", "dev/accuracy"], "dev"),
            (["runs/a", "runs/b", "--factor", "grpo.betta"], "did you mean 'grpo.beta'"),
            (["runs/a", "runs/b", "--out", "runs/a"], "holds a run"),
        ],
    )
    def test_mistakes_are_one_sentence(
        self, runs: Path, command_line: CommandLine, arguments: list[str], words: str
    ) -> None:
        assert words in command_line.refuse_in_a_line("compare", *arguments)


def write_seed(folder: Path, seed: int, accuracy: float, changes: dict[str, object]) -> Path:
    named = {"manifest.json:seed": seed, "manifest.json:config/seed": seed}
    rows = make_answers(accuracy, name=f"seed {seed}")
    return make_run(folder, {**changes, **named}, predictions=rows)


@pytest.fixture
def seeds(tmp_path: Path) -> Path:
    """Three seeds of each of two betas."""
    for seed in range(3):
        write_seed(tmp_path / f"runs/a/seed-{seed}", seed, 0.6, {})
        write_seed(tmp_path / f"runs/b/beta=0.15,seed-{seed}", seed, 0.95, dict(VARIED))
    return tmp_path / "runs"


def list_seeds(values: dict[str, Any]) -> list[list[int]]:
    return [[seed for seed, _ in one["seeds"]] for one in values["cells"]]


class TestMethods:
    FACTOR = ("--factor", "grpo.beta")

    @pytest.mark.parametrize("joined", [False, True])
    def test_folders_of_runs_and_runs_joined_by_commas_are_sides(
        self, seeds: Path, command_line: CommandLine, joined: bool
    ) -> None:
        sides = [
            ",".join(f"runs/{name}-{seed}" for seed in range(3)) if joined else f"runs/{name[0]}"
            for name in ("b/beta=0.15,seed", "a/seed")
        ]
        done = command_line("compare", *sides, *self.FACTOR, "--out", "out")
        assert (done.returncode, done.stderr) == (0, "")
        assert "points for the method" in done.stdout
        assert "these checkpoints" not in done.stdout
        values = json.loads((seeds.parent / "out/comparison.json").read_text())
        assert list_seeds(values) == [[0, 1, 2]] * 2
        assert values["pairs"][0]["gaps"][0]["test"]["is_paired"]
        assert values["table"]["is_fair"]

    def test_two_policies_of_the_same_runs_are_methods(
        self, seeds: Path, command_line: CommandLine
    ) -> None:
        done = command_line.succeed("compare", "runs/a:grpo", "runs/a:sft", "--language", "zh")
        assert "方法的 95 % 区间" in done.stdout
        values = json.loads((seeds / "compare-a-grpo-a-sft/comparison.json").read_text())
        assert [one["policy"] for one in values["cells"]] == ["grpo", "sft"]

    def test_several_runs_are_reported_as_seeds(
        self, seeds: Path, command_line: CommandLine
    ) -> None:
        done = command_line("compare", "--together", *(f"runs/a/seed-{seed}" for seed in range(3)))
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.splitlines()[-1] == "report: runs/methods-seed-0/comparison.html"
        values = json.loads((seeds / "methods-seed-0/comparison.json").read_text())
        assert [(one["first"], one["second"]) for one in values["pairs"]] == [
            ("grpo", "sft"),
            ("grpo", "majority"),
        ]

    def test_a_sweep_over_seeds_is_reported_as_methods_and_is_a_side(
        self, seeds: Path, command_line: CommandLine
    ) -> None:
        for name in (f"seed={seed}" for seed in range(3)):
            digest = {"manifest.json:config_digest": name}
            write_seed(seeds / f"swept/cells/{name}", int(name[-1]), 0.7, digest)
        record_sweep(seeds / "swept", {f"seed={seed}": {"seed": str(seed)} for seed in range(4)})
        done = command_line("compare", "runs/swept")
        assert (done.returncode, done.stderr) == (0, "")
        values = json.loads((seeds / "swept/comparison.json").read_text())
        assert list_seeds(values)[0] == [0, 1, 2]
        command_line.succeed("compare", "runs/b", "runs/swept", *self.FACTOR, "--out", "out")
        joined = ",".join(f"runs/swept/cells/seed={seed}" for seed in range(3))
        command_line.succeed("compare", "runs/b", joined, *self.FACTOR, "--out", "again")
        found, other = (
            json.loads((seeds.parent / f"{name}/comparison.json").read_text())["pairs"][0]["gaps"]
            for name in ("out", "again")
        )
        assert found == other

    @pytest.mark.parametrize(
        ("arguments", "words"),
        [
            (["compare", "--together", "runs/a/seed-0", "runs/none"], "runs/none"),
            (["compare", "runs/a", "runs/a"], "a side is named twice"),
            (["compare", "runs/a", "runs/b", "--out", "runs/a/seed-0"], "holds a run"),
            (["compare", "runs/a,runs/none", "runs/b"], "runs/none"),
        ],
    )
    def test_mistakes_are_one_sentence(
        self, seeds: Path, command_line: CommandLine, arguments: list[str], words: str
    ) -> None:
        assert words in command_line.refuse_in_a_line(*arguments)

    def test_a_sweep_of_a_setting_and_seeds_compares_its_values_as_methods(
        self, seeds: Path, command_line: CommandLine
    ) -> None:
        cells: dict[str, dict[str, str]] = {}
        for beta, seed in ((beta, seed) for beta in ("0.12", "0.15") for seed in range(3)):
            name = f"grpo.beta={beta},seed={seed}"
            changes = {**(VARIED if beta == "0.15" else {}), "manifest.json:config_digest": name}
            write_seed(seeds / f"two/cells/{name}", seed, 6 * float(beta), changes)
            cells[name] = {"grpo.beta": beta, "seed": str(seed)}
        record_sweep(seeds / "two", cells)
        done = command_line("compare", "runs/two")
        assert (done.returncode, done.stderr) == (0, "")
        values = json.loads((seeds / "two/comparison.json").read_text())
        assert [one["system"] for one in values["cells"]] == ["0.12", "0.15"]
        assert list_seeds(values) == [[0, 1, 2]] * 2
        assert (values["table"]["is_fair"], values["table"]["axes"]) == (True, {})
        assert values["pairs"][0]["gaps"][0]["test"]["is_paired"]


def record_sweep(folder: Path, cells: dict[str, dict[str, str]]) -> None:
    """Write the record of a sweep from the coordinates of its cells; each is its own digest."""
    rows = [
        {"name": n, "folder": f"cells/{n}", "config_digest": n, "coordinates": at, "config": {}}
        for n, at in cells.items()
    ]
    keys = next(iter(cells.values()))
    values = {key: list(dict.fromkeys(at[key] for at in cells.values())) for key in keys}
    axes = [{"key": key, "values": found} for key, found in values.items()]
    record = {"format": 1, "recipe": "on_task", "axes": axes, "cells": rows}
    write_json(folder / "sweep.json", record)


def write_sweep(folder: Path) -> None:
    """Write a sweep of two betas and two sizes as it is after three cells are done."""
    cells: dict[str, dict[str, str]] = {}
    for beta, size in (("0.12", 120), ("0.12", 240), ("0.15", 120), ("0.15", 240)):
        name = f"{beta}-{size}"
        cells[name] = {"grpo.beta": beta, "evaluation.num_items": str(size)}
        if (beta, size) != ("0.15", 240):
            changes = {**(VARIED if beta == "0.15" else {}), "manifest.json:config_digest": name}
            answers = make_answers(float(beta) + 0.6, num_items=size)
            make_run(folder / "cells" / name, changes, predictions=answers)
    write_text(folder / "failed" / "0.15-240.txt", "out of memory")
    record_sweep(folder, cells)


class TestReport:
    def test_a_sweep_is_reported_by_its_first_axis_or_by_those_that_are_named(
        self, tmp_path: Path, command_line: CommandLine
    ) -> None:
        write_sweep(tmp_path / "sweep")
        done = command_line("compare", "sweep")
        assert (done.returncode, done.stderr) == (0, "")
        assert "out of memory" in done.stdout
        assert "1 of 4\u00a0cells have not run" in done.stdout
        values = json.loads((tmp_path / "sweep/comparison.json").read_text())
        table = values["table"]
        assert (table["system_axis"], table["is_fair"]) == ("grpo.beta", True)
        assert table["axes"] == {"evaluation.num_items": ["120", "240"]}
        assert [cell["state"] for cell in values["cells"]] == ["done", "done", "done", "failed"]
        size = ("--factor", "evaluation.num_items")
        command_line.succeed("compare", "sweep", *size, "--out", "out")
        values = json.loads((tmp_path / "out/comparison.json").read_text())
        assert {one["system"] for one in values["cells"]} == {"120", "240"}
        assert values["pairs"][0]["gaps"][0]["why_none"] == "other_items"
        command_line.succeed("compare", "sweep", "--factor", "grpo.beta", *size)
        values = json.loads((tmp_path / "sweep/comparison.json").read_text())
        assert values["table"]["axes"] == {}
        assert values["cells"][0]["system"] == "beta 0.12, num_items 120"
        said = command_line.refuse("compare", "sweep", "sweep/cells/0.12-120")
        assert "no sweep over seeds alone; got the axes grpo.beta" in said

    def test_a_run_is_rendered_in_its_folder_in_either_language(
        self, runs: Path, command_line: CommandLine
    ) -> None:
        said = command_line.refuse("compare", "runs/a", "--out", "elsewhere")
        assert "written into the run; got --out" in said
        for language, title in (("en", "<h2>Mistakes</h2>"), ("zh", "<h2>错例</h2>")):
            done = command_line.succeed("compare", "runs/a", "--language", language)
            assert title in (runs / "a/report.html").read_text(encoding="utf-8")
        assert done.stdout == "report: runs/a/report.html\n"

    def test_anything_else_is_refused(self, tmp_path: Path, command_line: CommandLine) -> None:
        (tmp_path / "empty").mkdir()
        for target in ("empty", "nowhere"):
            assert f"nothing to report on at {target}" in command_line.refuse("compare", target)
