"""Which groups stand behind the held-out curve of GRPO."""

from collections import Counter
from pathlib import Path

import pytest
from group_words import make_question

from groupwise.core import Example, load_config
from groupwise.data import write_examples
from groupwise.flow import training
from groupwise.pipeline import StepContext, find_config, find_recipe
from groupwise_recipes.group_qc.config import GroupQcConfig
from groupwise_recipes.group_qc.recipe import recipe

MISSIONS = ("BBU接地线检查", "BBU安装方式检查", "BBU线缆布放要求", "挡风板安装检查")
SORTED = [
    make_question(
        mission, ["要点"], {"图片_1": f"机柜×{n}"}, group=f"{mission}{label}{n}", label=label
    )
    for mission in MISSIONS
    for label, num_groups in (("通过", 12), ("不通过", 6))
    for n in range(num_groups)
]


def draw(folder: Path, monkeypatch: pytest.MonkeyPatch, *, seed: int, num: int) -> list[Example]:
    """Run the GRPO step without a model; return what its held-out check was given."""
    overrides = [f"seed={seed}", f"evaluation.num_heldout_items={num}"]
    config = load_config(
        GroupQcConfig, find_config(find_recipe("group_qc"), "demo"), overrides=overrides
    )
    for name, examples in (("train", SORTED[:4]), ("validation", SORTED)):
        write_examples(folder / "stage_b_data" / f"{name}.jsonl", examples)
    found: list[Example] = []
    monkeypatch.setattr(training, "open_policy", lambda *_: None)
    monkeypatch.setattr(training, "train_grpo", lambda *_, check_heldout, **__: check_heldout())
    monkeypatch.setattr(training, "check_heldout", lambda *given, run: found.extend(given[2]))
    monkeypatch.setattr(training, "keep_policy", lambda *_: None)
    [step] = [one for one in recipe.plan(config, folder) if one.name == "grpo"]
    context = StepContext(folder, folder / "grpo", "grpo", False, step.uses, config=step.config)
    step.run(context)
    return found


def test_every_mission_and_label_has_its_share(tmp_path: Path, monkeypatch) -> None:
    found = draw(tmp_path, monkeypatch, seed=0, num=24)
    counts = Counter((one.fields["task_type"], one.label) for one in found)
    assert counts == {(m, label): n for m in MISSIONS for label, n in (("通过", 4), ("不通过", 2))}
    assert found == [one for one in SORTED if one in found]


def test_the_draw_is_by_the_seed(tmp_path: Path, monkeypatch) -> None:
    first, again, other = (
        [one.id for one in draw(tmp_path, monkeypatch, seed=seed, num=24)] for seed in (0, 0, 1)
    )
    assert first == again != other


def test_all_are_there_where_there_are_no_more(tmp_path: Path, monkeypatch) -> None:
    assert draw(tmp_path, monkeypatch, seed=0, num=96) == SORTED
