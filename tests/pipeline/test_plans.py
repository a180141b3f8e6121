"""What plans of recipes are made of."""

import sys
from pathlib import Path

from groupwise.core import Config, digest_file
from groupwise.evaluation import METRIC_VERSIONS
from groupwise.pipeline import StepContext, bind_work, collect_settings, digest_inputs


class Training(Config):
    epochs: int = 2
    rates: tuple[float, ...] = (0.5,)
    batch_size: int = 8


class Job(Config):
    seed: int = 7
    training: Training = Training()


def test_settings_are_sections_and_named_parts_of_them() -> None:
    found = collect_settings(Job(), parts={"pace": ("training", ("epochs", "rates"))})
    assert found == {
        "seed": 7,
        "training": {"epochs": 2, "rates": [0.5], "batch_size": 8},
        "metric_versions": METRIC_VERSIONS,
        "pace": {"epochs": 2, "rates": [0.5]},
    }
    assert collect_settings(Job()).keys() == {"seed", "training", "metric_versions"}


def test_work_is_imported_when_it_runs(tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "heavy_work.py").write_text(
        "WORK = {'train': lambda *given: DONE.append(given), 'report': None}\nDONE = []\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    config = Job()
    work = bind_work("heavy_work:WORK", "train", config)
    assert "heavy_work" not in sys.modules
    context = StepContext(tmp_path, tmp_path / "train", "train", is_resumed=False)
    work(context)
    assert [(config, context)] == sys.modules.pop("heavy_work").DONE


def test_inputs_are_known_by_content_and_only_where_they_are(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "a.txt").write_text("a")
    (tmp_path / "table.csv").write_text("b")
    found = digest_inputs(
        {
            "data.root": tmp_path / "photos",
            "data.table": str(tmp_path / "table.csv"),
            "data.missions": None,
            "model.base": "some/model",
        }
    )
    assert found == {
        "data.root": digest_file(tmp_path / "photos"),
        "data.table": digest_file(tmp_path / "table.csv"),
    }
