"""Runs that an earlier version finished are read as they were: predict, serve, compare, report.

``tests/frozen_runs`` has them packed, without the pictures beside their reports; whether later
versions read them is what is tested, so they are never made again. With ``GROUPWISE_RECORD=1`` the
tests write what they find instead of comparing it.
"""

import json
import lzma
import math
import os
import re
import shutil
import signal
import tarfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from command_line import CommandLine
from waiting import find_free_port, start_server

from groupwise.core import load_config, read_jsonl
from groupwise.evaluation.metrics import compare_pairs, compute_metrics, write_metrics
from groupwise.evaluation.predictions import read_predictions
from groupwise.run.recipe import find_recipe

MESSAGES = (
    "My parcel is late by three days.",
    "The zip of the tent broke on the first evening.",
    "I was charged twice for the kettle.",
    "",
    "Where is my order?",
)
PHOTOS = Path(__file__).parent / "golden" / "cases" / "group_qc" / "photos" / "BBU接地线检查"
GONE = {"test", "effect_size", "design_effect", "num_items_needed", "num_effective_clusters"}
"""Of comparisons that old runs have: what said how many items it would take, and which test it was.

Quantiles of latency are in their metrics, too; the seconds stand in the predictions.
"""
ANSWER = ("text", "answer", "reason", "confidence", "needs_person", "details", "failed", "row")
FROZEN = Path(__file__).parent / "frozen_runs"

STATISTICS = {
    *("value", "low", "high", "n", "num_clusters", "difference", "estimate", "df", "seed_share"),
    *("p_value", "p_value_clustered", "p_value_holm", "num_carrying"),
    *("num_a_only", "num_b_only", "num_same_answer", "value_a", "value_b"),
    *("mean", "lowest", "highest", "values", "invalid_rate"),
}
"""Names of the numbers that statistics give."""

_FRACTION = re.compile(r"\d+\.\d+")


def unpack(name: str, folder: Path) -> Path:
    with tarfile.open(FROZEN / f"{name}.tar.xz") as packed:
        packed.extractall(folder, filter="data")
    return folder / name


def check(name: str, found: Any) -> None:
    """Compare with what was recorded: texts and whole numbers as they are, others to 12 digits.

    Weights give other last digits on other machines, so confidences count to 3 digits.
    """
    path = FROZEN / f"{name}.json"
    if os.environ.get("GROUPWISE_RECORD"):
        path.parent.mkdir(exist_ok=True)
        text = json.dumps(found, ensure_ascii=False, indent=1, sort_keys=True)
        path.write_text(text + "\n", encoding="utf-8")
    differences = list_differences(json.loads(path.read_text(encoding="utf-8")), found, "")
    assert not differences, "\n".join(differences)


def list_differences(old: Any, new: Any, key: str) -> list[str]:
    """Return a line for each value that differs, with the way to it; more may be ``shown``."""
    if isinstance(old, dict) and isinstance(new, dict):
        lost = sorted({*old.get("shown", ())} - {*new.get("shown", ())})
        names = {name for name in {**old, **new} if name != "shown"}
        lines = [list_differences(old.get(n), new.get(n), f"{key}/{n}") for n in names]
        not_shown = [f"{key}/shown: {one} is shown no more" for one in lost]
        return not_shown + [line for one in lines for line in one]
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        pairs = zip(old, new, strict=True)
        lines = [list_differences(*pair, f"{key}/{n}") for n, pair in enumerate(pairs)]
        return [line for one in lines for line in one]
    if isinstance(old, float) and isinstance(new, float):
        rel, least = (0.0, 1e-3) if key.endswith("/confidence") else (1e-12, 1e-15)
        is_same = math.isclose(old, new, rel_tol=rel, abs_tol=least)
    else:
        is_same = old == new and type(old) is type(new)
    return [] if is_same else [f"{key}: {old!r} -> {new!r}"]


def read_comparison(folder: Path) -> dict[str, Any]:
    """Return the numbers of ``compare``: of each system, of each pair, and those its page shows."""
    told = json.loads((folder / "comparison.json").read_text(encoding="utf-8"))
    return {
        "is_fair": told["table"]["is_fair"],
        "recommended": told["recommended"],
        "systems": {one["system"]: pick(one) for one in told["cells"]},
        "pairs": {
            f"{one['first']} - {one['second']}": [
                pick({**gap["test"], "p_value_holm": gap["p_holm"]}) for gap in one["gaps"]
            ]
            for one in told["pairs"]
        },
        "shown": read_shown(folder / "comparison.md"),
    }


def read_methods(folder: Path) -> dict[str, Any]:
    """Return the numbers of the report of several seeds."""
    told = json.loads((folder / "comparison.json").read_text(encoding="utf-8"))
    methods: dict[str, Any] = {}
    for one in told["cells"]:
        values = [value for _, value in one["seeds"]]
        ends = {"lowest": min(values), "highest": max(values)}
        methods[one["system"]] = {"mean": one["value"], "values": values, **ends}
    return {
        "is_fair": told["table"]["is_fair"] is not False,
        "methods": methods,
        "pairs": {
            f"{one['first']} - {one['second']}": pick(
                {**gap["test"], "p_value_holm": gap["p_holm"]}
            )
            for one in told["pairs"]
            for gap in one["gaps"]
        },
        "shown": read_shown(folder / "comparison.md"),
    }


def pick(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name in STATISTICS}


def read_shown(path: Path) -> list[str]:
    """Return the fractions that a page shows, each once: shares, intervals, p values, settings."""
    text = path.read_text(encoding="utf-8").replace("\u00a0", " ")
    return sorted(set(_FRACTION.findall(re.sub(r"`[^`]*`", " ", text))))


def pick_answer(answer: dict[str, Any]) -> dict[str, Any]:
    return {name: answer[name] for name in ANSWER if name in answer}


def ask(command_line: CommandLine, run: Path | str, rows: Path) -> dict[str, Any]:
    """Return what ``predict`` answers, by the id of the row."""
    answers = Path(f"{Path(run).name}.jsonl")
    command_line.succeed("predict", run, rows, "--out", answers)
    return {one["id"]: pick_answer(one) for one in read_jsonl(answers)}


@contextmanager
def serve(run: Path) -> Iterator[httpx2.Client]:
    port = find_free_port()
    command = ["-m", "groupwise.cli", "serve", run, "--set", f"port={port}"]
    process = start_server(command, port, env={**os.environ, "OMP_NUM_THREADS": "1"})
    try:
        with httpx2.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
            yield client
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=60)


class TestLabels:
    def test_predict(self, tmp_path: Path, command_line: CommandLine) -> None:
        run = unpack("labels", tmp_path)
        rows = tmp_path / "rows.jsonl"
        rows.write_text("".join(json.dumps({"message": one}) + "\n" for one in MESSAGES))
        found = {name: ask(command_line, f"{run}:{name}", rows) for name in ("sft", "grpo")}
        check("answers/labels", found)

    @pytest.mark.slow
    def test_serve(self, tmp_path: Path) -> None:
        with serve(unpack("labels", tmp_path)) as client:
            found = [client.post("/v1/predict", json={"row": {"message": one}}) for one in MESSAGES]
        answers = [pick_answer(one.json()) for one in found]
        check("answers/labels_served", [[one.status_code for one in found], answers])


class TestGroupQc:
    def test_predict(self, tmp_path: Path, command_line: CommandLine) -> None:
        run = unpack("group_qc", tmp_path)
        shutil.copytree(PHOTOS, tmp_path / "asked" / PHOTOS.name)
        check("answers/group_qc", ask(command_line, run, tmp_path / "asked"))

    @pytest.mark.slow
    def test_serve(self, tmp_path: Path) -> None:
        groups = sorted(PHOTOS.glob("*/*"))
        with serve(unpack("group_qc", tmp_path)) as client:
            found = [
                client.post(
                    "/v1/predict",
                    data={"row": json.dumps({"mission": PHOTOS.name})},
                    files=[
                        ("pictures", (one.name, one.read_bytes()))
                        for one in sorted(group.iterdir())
                    ],
                )
                for group in groups
            ]
        answers = [pick_answer(one.json()) for one in found]
        check("answers/group_qc_served", [[one.status_code for one in found], answers])


class TestStatistics:
    def test_metrics_and_tests_of_a_run(self, tmp_path: Path) -> None:
        """What the run wrote itself is what its predictions give now."""
        run = unpack("labels", tmp_path)
        predictions = read_predictions(run / "evaluate" / "predictions.jsonl")
        told = json.loads((run / "evaluate" / "comparisons.json").read_text())
        pairs = [(one["policy_a"], one["policy_b"]) for one in told]
        write_metrics(
            tmp_path / "metrics.json",
            compute_metrics(predictions, labels=("billing", "delivery", "fault"), seed=0),
        )
        write_metrics(tmp_path / "comparisons.json", compare_pairs(predictions, pairs, seed=0))
        for name in ("metrics", "comparisons"):
            now = json.loads((tmp_path / f"{name}.json").read_text())
            then = json.loads((run / "evaluate" / f"{name}.json").read_text())
            then = [one for one in then if "/latency_p" not in one.get("name", "")]
            assert now == [{k: v for k, v in one.items() if k not in GONE} for one in then]

    def test_report_of_a_run(self, tmp_path: Path, command_line: CommandLine) -> None:
        run = unpack("labels", tmp_path)
        command_line.succeed("compare", run)
        check("statistics/run", {"shown": read_shown(run / "report.md")})

    def test_two_policies_of_a_run(self, tmp_path: Path, command_line: CommandLine) -> None:
        run = unpack("labels", tmp_path)
        command_line.succeed("compare", f"{run}:sft", f"{run}:grpo", "--out", "out")
        check("statistics/two_policies", read_comparison(Path("out")))

    def test_two_seeds_of_a_task(self, tmp_path: Path, command_line: CommandLine) -> None:
        runs = [unpack(name, tmp_path) for name in ("labels", "labels_other_seed")]
        named = ("--factor", "seed", "--factor", "budget")
        command_line.succeed("compare", *runs, *named, "--out", "out")
        check("statistics/two_seeds", read_comparison(Path("out")))

    def test_two_policies_in_pictures(self, tmp_path: Path, command_line: CommandLine) -> None:
        run = unpack("group_qc", tmp_path)
        command_line.succeed("compare", f"{run}:prompt", f"{run}:grpo", "--out", "out")
        check("statistics/group_qc", read_comparison(Path("out")))

    def test_six_seeds_with_clusters(self, tmp_path: Path, command_line: CommandLine) -> None:
        runs = sorted(unpack("six_seeds", tmp_path).iterdir())
        assert command_line("compare", "--together", *runs, "--out", "out").returncode == 0
        check("statistics/six_seeds", read_methods(Path("out")))
        named = ("--factor", "seed")
        assert command_line("compare", *runs[:2], *named, "--out", "two").returncode == 0
        check("statistics/six_seeds_two", read_comparison(Path("two")))


def read_old_configs() -> dict[str, Mapping[str, Any]]:
    """Return the shipped configs as an earlier version resolved and wrote them into runs."""
    return json.loads(lzma.decompress((FROZEN / "configs.json.xz").read_bytes()))


def find_values(config: Mapping[str, Any], key: str = "") -> dict[str, Any]:
    """Return what a config says, by the way to it."""
    found: dict[str, Any] = {}
    for name, value in config.items():
        here = f"{key}.{name}" if key else name
        found |= find_values(value, here) if isinstance(value, Mapping) else {here: value}
    return found


@pytest.mark.parametrize(("name", "config"), read_old_configs().items())
def test_configs_of_old_runs_say_what_they_said(name: str, config: Mapping[str, Any]) -> None:
    recipe = find_recipe(name.partition("/")[0])
    was = {key: value for key, value in find_values(config).items() if key != "executor.stub"}
    now = find_values(load_config(recipe.load_config_type(), config).model_dump(mode="json"))
    assert {key: value for key, value in now.items() if key in was} == {
        key: value for key, value in was.items() if key in now
    }
    assert len(now.keys() & was.keys()) >= 0.9 * len(now)
