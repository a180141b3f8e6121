"""A finished run whose files were changed is refused by whoever reads it; a copied one is not.

What the verbs say of many changes stands in ``tests/faults/tampered.jsonl``.
"""

import shutil
from pathlib import Path

import pytest

from groupwise.cli.watch import RunReader
from groupwise.core import RunError, TrainingError, read_json, write_json, write_text
from groupwise.flow import open_run


@pytest.fixture
def copied(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "moved" / "run"))


def change(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b"e", b"f", 1))


READERS = {
    "watch": lambda run: RunReader(run).read(),
}


@pytest.mark.parametrize("reader", READERS)
def test_changed_predictions_and_manifests_are_refused(copied: Path, reader: str) -> None:
    READERS[reader](copied)
    predictions = copied / "evaluate" / "predictions.jsonl"
    before = predictions.read_bytes()
    change(predictions)
    with pytest.raises(RunError, match=r"got evaluate/predictions.jsonl, which was changed"):
        READERS[reader](copied)
    predictions.write_bytes(before)
    manifest = read_json(copied / "manifest.json", dict)
    write_json(copied / "manifest.json", {**manifest, "seed": manifest["seed"] + 1})
    with pytest.raises(RunError, match=r"manifest.json was changed since its run wrote it"):
        READERS[reader](copied)


def test_a_checkpoint_with_other_weights_is_refused(copied: Path) -> None:
    name = min(path.name for path in (copied / "grpo").glob("checkpoint-*"))
    run = open_run(copied)
    assert Path(run.find_policy(f"grpo/{name}")) == copied / "grpo" / name
    change(copied / "grpo" / name / "adapter_model.safetensors")
    with pytest.raises(TrainingError, match=r"got another adapter_model.safetensors"):
        run.find_policy(f"grpo/{name}")


def test_a_run_names_no_code_of_its_own(copied: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither from within its folder nor from above it; nothing is imported to find out."""
    write_text(copied / "evil.py", "from pathlib import Path\nPath('ran').touch()\n")
    manifest = read_json(copied / "manifest.json", dict)
    del manifest["digest"]
    for folder, module in ((copied, "evil"), (copied.parent, "run.evil")):
        monkeypatch.chdir(folder)
        monkeypatch.syspath_prepend(str(folder))
        write_json(copied / "manifest.json", {**manifest, "recipe": f"{module}:RECIPE"})
        with pytest.raises(RunError, match="names code in its own folder as its recipe; got"):
            open_run(copied)
        assert not (folder / "ran").exists()
