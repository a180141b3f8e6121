"""The manifest names the versions of the metrics that a recipe's steps measure with."""

from pathlib import Path

from groupwise.core import Config, RunFolder
from groupwise.pipeline import Preview, Recipe, Step, run_recipe


class MeasuredConfig(Config):
    seed: int = 0


def make_recipe(versions: dict[str, int], done: list[str]) -> Recipe[MeasuredConfig]:
    def plan(config: MeasuredConfig, run: Path) -> list[Step]:
        return [
            Step("prepare", lambda _: done.append("prepare"), settings=3),
            Step(
                "evaluate",
                lambda _: done.append("evaluate"),
                uses=("prepare",),
                settings={"metric_versions": versions},
            ),
        ]

    return Recipe("measured", "", MeasuredConfig, Path(), plan, lambda _: Preview())


def test_versions_are_in_the_manifest_and_new_ones_measure_again(tmp_path: Path) -> None:
    done: list[str] = []
    run_recipe(make_recipe({"accuracy": 1}, done), MeasuredConfig(), out=tmp_path / "run")
    manifest = RunFolder(tmp_path / "run").read_manifest()
    assert manifest["metric_versions"] == {"accuracy": 1}
    run_recipe(make_recipe({"accuracy": 2}, done), MeasuredConfig(), out=tmp_path / "run")
    assert done == ["prepare", "evaluate", "evaluate"]
    assert RunFolder(tmp_path / "run").read_manifest()["metric_versions"] == {"accuracy": 2}
