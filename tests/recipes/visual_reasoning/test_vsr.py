"""VSR as it is published, and the figures of its biased variants."""

import json
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from groupwise.core import ConfigError, DataError, read_json, write_json, write_jsonl
from groupwise_recipes.visual_reasoning.biased_variants import biased_variants
from groupwise_recipes.visual_reasoning.rows import LoadedRows, Reasoning, read_rows
from groupwise_recipes.visual_reasoning.sources import add_judged, load_vsr

app = typer.Typer()
app.command()(biased_variants)


def record(image: str, caption: str, label: Any, relation: str = "on") -> dict[str, Any]:
    link = f"http://images.cocodataset.org/train2017/{image}"
    told = {"image": image, "image_link": link, "caption": caption, "label": label}
    return {**told, "relation": relation, "subj": "cup", "obj": "table", "annotator_id": 3}


def write_folder(folder: Path, train: list[dict[str, Any]]) -> Path:
    write_jsonl(folder / "train.jsonl", train)
    write_jsonl(folder / "dev.jsonl", [record("2.jpg", "The cup is near the cat.", 0, "near")])
    write_jsonl(folder / "test.jsonl", [record("3.jpg", "The cup is on the hat.", 1)])
    return folder


def test_the_published_form_is_read(tmp_path: Path):
    train = [
        record("1.jpg", "The cup is on the table.", 1),
        record("1.jpg", "The cup is on the table.", 0),
        record("1.jpg", "The cup is on the table.", 2),
        {"image": "1.jpg"},
        record("1.jpg", "", 1),
    ]
    loaded = load_vsr(write_folder(tmp_path / "random", train))
    assert [(row.split, row.answer, row.relation) for row in loaded.rows] == [
        ("train", "True", "on"),
        ("validation", "False", "near"),
        ("test", "True", "on"),
    ]
    row = loaded.rows[0]
    assert (row.source, row.cluster, row.picture) == ("vsr_random", "1.jpg", None)
    assert loaded.drops.counts == {
        "not of the published form": 2,
        "no text": 1,
        "repeated id": 1,
    }
    assert loaded.num_records == 7
    assert "train.jsonl row 3: the record is not of the published form; got label" in (
        loaded.drops.rows[1].where
    )


def test_a_picture_that_is_missing_drops_its_rows(tmp_path: Path):
    folder = write_folder(tmp_path, [record("1.jpg", "The cup is on the table.", 1)])
    pictures = tmp_path / "pictures"
    pictures.mkdir()
    with pytest.raises(DataError, match=r"no row that can be used; got \{'missing picture': 3\}"):
        load_vsr(folder, pictures=pictures)
    (pictures / "1.jpg").touch()
    loaded = load_vsr(folder, pictures=pictures)
    assert [row.picture for row in loaded.rows] == [pictures / "1.jpg"]
    assert loaded.drops.counts == {"missing picture": 2}


def judged(caption: str, said: Any) -> dict[str, Any]:
    return {
        "index": 0,
        "model": "base",
        "question": caption,
        "final_ans": "False",
        "aligns": True,
        "image_url": "http://images.cocodataset.org/train2017/1.jpg",
        "model_reasoning": f"said {said!r}",
        "human_aligns": said,
        "human_comment": "",
    }


def test_judged_reasonings_join_their_rows(tmp_path: Path):
    caption = "The cup is on the table."
    loaded = load_vsr(write_folder(tmp_path, [record("1.jpg", caption, 1)]))
    told = [*(judged(caption, said) for said in ("True", "False", "", True, None))]
    write_json(tmp_path / "judged.json", [*told, judged("Another.", "True"), judged(caption, "?")])
    more = add_judged(loaded, tmp_path / "judged.json")
    assert more.rows[0].reasonings == (
        Reasoning("said 'True'", "False", aligns=True),
        Reasoning("said 'False'", "False", aligns=False),
        Reasoning("said ''", "False"),
        Reasoning("said True", "False", aligns=True),
        Reasoning("said None", "False"),
    )
    assert more.rows[1:] == loaded.rows[1:]
    assert more.drops.counts == {"not of the published form": 1, "reasoning of no row": 1}
    assert more.num_records == len(more.rows) + more.drops.total
    assert loaded.drops.total == 0


@pytest.fixture(scope="module")
def zeroshot(real_vsr: Path) -> LoadedRows:
    return load_vsr(real_vsr / "zeroshot")


def test_all_of_the_real_rows_are_used(zeroshot: LoadedRows):
    assert (len(zeroshot.rows), zeroshot.drops.total) == (5051, 0)


def run(*options: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, options)
    return result.exit_code, result.output


def test_one_command_gives_the_figures_of_the_zero_shot_split(real_vsr: Path, tmp_path: Path):
    keeps = ["--keep", "0.8", "--keep", "0.6", "--keep", "0"]
    code, output = run("--data", str(real_vsr / "zeroshot"), *keeps, "--out", str(tmp_path))
    assert code == 0
    told = read_json(tmp_path / "variants.json", dict)
    assert [one["num_rows"] for one in told["variants"]] == [3137, 2812, 1857]
    found = [round(one["in_sample"]["accuracy"], 3) for one in told["variants"]]
    assert found == [0.592, 0.660, 1.0]
    assert {(one["test"]["num_right"], one["test"]["num_rows"]) for one in told["variants"]} == {
        (628, 1222)
    }
    assert (told["num_train"], len(told["ties"])) == (3489, 14)
    # How ties are labelled moves the figure: it must not stand there as if it could be no other.
    for one in told["variants"]:
        low, high = one["test_over_seeds"]
        assert low < one["test"]["accuracy"] < high
    assert "0.511 to 0.517 over 50 seeds, which label 14 ties" in output
    assert "keep 0.6: 2,812 of 3,489 rows" in output
    assert "2 pictures stand in train and in test" in output
    assert [len(read_rows(tmp_path / f"keep-{keep}.jsonl")) for keep in ("0.8", "0.6", "0")] == [
        3137,
        2812,
        1857,
    ]
    sides = [len(read_rows(tmp_path / f"test-{side}.jsonl")) for side in ("aligned", "conflicting")]
    assert sides == [told["num_aligned"], told["num_conflicting"]] == [626, 592]


def test_the_random_split_is_far_below_chance_for_a_caption(real_vsr: Path, tmp_path: Path):
    code, output = run("--data", str(real_vsr / "random"), "--keep", "0.6", "--out", str(tmp_path))
    assert code == 0
    told = json.loads((tmp_path / "variants.json").read_text())
    assert "978 pictures stand in train and in test" in output
    assert told["caption_probe"]["accuracy"] < 0.3
    assert "text_probe_below_chance" in [one["name"] for one in told["findings"]]


def test_a_mistake_writes_nothing(tmp_path: Path):
    folder = write_folder(tmp_path / "vsr", [record("1.jpg", "The cup is on the table.", 1)])
    options = ["--data", str(folder), "--keep", "2", "--out", str(tmp_path / "out")]
    with pytest.raises(ConfigError, match="keep is no share; got 2"):
        CliRunner().invoke(app, options, catch_exceptions=False)
    assert not (tmp_path / "out").exists()
