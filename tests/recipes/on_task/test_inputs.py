"""What each step of on_task reads from outside: changed in place, it is redone, and only it."""

from pathlib import Path

import pytest
from PIL import Image
from plan_keys import copy_sources, list_changed, plan, read_keys, run_stand_ins, write_base

LOADING = {"baselines", "sft", "grpo", "sft_control", "evaluate"}
"""The steps that load weights."""

JUDGE = "judge={model: %s}"


@pytest.fixture
def base(tmp_path: Path) -> Path:
    return write_base(tmp_path / "base")


def read(run: Path, *overrides: str, config: str = "demo") -> dict[str, str]:
    return read_keys(plan("on_task", run, config, *overrides))


def test_replaced_weights_redo_every_step_that_loads_them(tmp_path: Path, base: Path) -> None:
    before = read(tmp_path, f"model.base={base}")
    (base / "model.safetensors").write_bytes(bytes(999) + b"1")
    changed = list_changed(before, read(tmp_path, f"model.base={base}"))
    assert changed == LOADING | {"prepare", "audit"}


def test_another_commit_of_a_hub_id_is_another_base(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    reference = tmp_path / "models--some--model" / "refs" / "main"
    reference.parent.mkdir(parents=True)
    reference.write_text("a" * 40)
    before = read(tmp_path, "model.base=some/model")
    reference.write_text("b" * 40)
    assert list_changed(before, read(tmp_path, "model.base=some/model")) >= LOADING


def test_a_run_with_other_weights_takes_nothing_over_that_loaded_them(
    tmp_path: Path, base: Path
) -> None:
    runs = tmp_path / "runs"
    steps = plan("on_task", runs / "a", "demo", f"model.base={base}")
    run_stand_ins(steps, runs / "a", siblings=runs)
    same = run_stand_ins(steps, runs / "b", siblings=runs)
    assert {same[name] for name in LOADING} == {"shared"}
    (base / "model.safetensors").write_bytes(bytes(999) + b"1")
    steps = plan("on_task", runs / "c", "demo", f"model.base={base}")
    other = run_stand_ins(steps, runs / "c", siblings=runs)
    assert {other[name] for name in LOADING} == {"run"}


def test_the_weights_of_a_judge_are_read_by_grpo_alone(tmp_path: Path, base: Path) -> None:
    before = read(tmp_path, JUDGE % base)
    (base / "model.safetensors").write_bytes(bytes(999) + b"1")
    assert list_changed(before, read(tmp_path, JUDGE % base)) == {"grpo"}


@pytest.mark.parametrize(
    ("file", "old", "new", "changed"),
    [
        ("groupwise/rewards/label_match.py", "1.0", "0.9", {"grpo", "audit_rewards"}),
        ("groupwise/rewards/label_match.py", "\nfrom ", "\n# Why.\nfrom ", set()),
        ("groupwise/evaluation/baselines.py", "Classifier(60", "Classifier(61", {"baselines"}),
        ("groupwise/rewards/audit/probes.py", "return", "return 1 or", {"audit_rewards"}),
        (
            "groupwise_recipes/on_task/prompts/judge.en.txt",
            "screen",
            "picture",
            {"grpo", "audit_rewards"},
        ),
        (
            "groupwise/rewards/labels.py",
            "MAX_WORDS_LENGTH = 60",
            "MAX_WORDS_LENGTH = 61",
            LOADING | {"prepare", "audit_rewards"},
        ),
    ],
)
def test_code_that_is_edited_redoes_what_it_decides(
    tmp_path: Path, base: Path, monkeypatch, file: str, old: str, new: str, changed: set[str]
) -> None:
    source = copy_sources(tmp_path / "src", monkeypatch) / file
    before = read(tmp_path, JUDGE % base)
    text = source.read_text(encoding="utf-8")
    assert old in text
    source.write_text(text.replace(old, new, 1), encoding="utf-8")
    assert list_changed(before, read(tmp_path, JUDGE % base)) == changed


@pytest.fixture
def screens(tmp_path: Path) -> Path:
    """Three screenshots: in the folder, in a folder that is linked, and elsewhere."""
    root, elsewhere = tmp_path / "screens", tmp_path / "elsewhere"
    for folder in (root, elsewhere / "linked"):
        folder.mkdir(parents=True)
    places = {
        "own.png": root / "own.png",
        "linked/far.png": elsewhere / "linked" / "far.png",
        "../elsewhere/out.png": elsewhere / "out.png",
    }
    for path in places.values():
        Image.new("RGB", (8, 8)).save(path)
    (root / "linked").symlink_to(elsewhere / "linked")
    rows = "".join(f"{name},write,s{number}\n" for number, name in enumerate([*places, "gone.png"]))
    (root / "index.csv").write_text(f"image,task,session\n{rows}")
    return root


def look(run: Path, screens: Path) -> dict[str, str]:
    return read(run, f"data.root={screens}", config="screenagent-tiny")


@pytest.mark.parametrize("name", ["own.png", "linked/far.png", "../elsewhere/out.png", "gone.png"])
def test_a_screenshot_changed_in_place_is_noticed_wherever_it_is(
    tmp_path: Path, screens: Path, name: str
) -> None:
    before = look(tmp_path, screens)
    Image.new("RGB", (8, 8), "red").save(screens / name)
    assert list_changed(before, look(tmp_path, screens)) == {"prepare"}


def test_what_no_row_names_is_no_input(tmp_path: Path, screens: Path) -> None:
    before = look(tmp_path, screens)
    (screens / "notes.txt").write_text("Nobody reads this.")
    assert look(tmp_path, screens) == before
