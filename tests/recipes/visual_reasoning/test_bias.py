"""Biased training: what is left out, what becomes of pairs, and what the audit says of words."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from groupwise.core import Example, load_config, read_json, write_jsonl
from groupwise.data import read_examples
from groupwise_recipes.visual_reasoning.asking import prepare_rows
from groupwise_recipes.visual_reasoning.config import VisualConfig
from groupwise_recipes.visual_reasoning.loading import load_rows
from groupwise_recipes.visual_reasoning.rows import VisualRow, forget_lost_partners
from groupwise_recipes.visual_reasoning.task import TASK

CONFIG = Path(__file__).parents[3] / "src/groupwise_recipes/visual_reasoning/configs/bias.yaml"
NUM_PAIRS = 30


def configure(*overrides: str) -> VisualConfig:
    small = (f"data.drawn.num_pairs={NUM_PAIRS}", "data.drawn.num_test_pairs=6")
    return load_config(
        VisualConfig, CONFIG, overrides=["model.base=tiny-qwen2.5-vl", *small, *overrides]
    )


def read_train(folder: Path) -> list[Example]:
    return [one for name in ("warmup", "train") for one in read_examples(folder / f"{name}.jsonl")]


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folders = {keep: tmp_path_factory.mktemp(f"keep-{keep}") for keep in ("1", "0.6", "0")}
    for keep, folder in folders.items():
        prepare_rows(configure(f"data.keep={keep}"), folder)
    return folders


@pytest.mark.parametrize(("keep", "num_others"), [("1", 5), ("0.6", 3), ("0", 0)])
def test_each_relation_of_drawn_scenes_keeps_one_answer(
    prepared: dict[str, Path], keep: str, num_others: int
) -> None:
    told = read_json(prepared[keep] / "bias.json", dict)
    counts = Counter((e.fields["relation"], e.label) for e in read_train(prepared[keep]))
    assert len(told["kept_labels"]) == len(told["ties"]) == 6
    for relation, label in told["kept_labels"].items():
        other = {"True": "False", "False": "True"}[label]
        assert (counts[relation, label], counts[relation, other]) == (5, num_others)
    assert told["relation"]["in_sample"]["accuracy"] == 5 / (5 + num_others)
    assert (told["num_train"], told["num_test"]) == (
        6 * (5 + num_others),
        {"aligned": 6, "conflicting": 6},
    )


def test_rows_that_are_left_out_are_counted(prepared: dict[str, Path]) -> None:
    for folder in prepared.values():
        source = read_json(folder / "source.json", dict)
        others = [read_examples(folder / f"{name}.jsonl") for name in ("validation", "test")]
        num_used = len(read_train(folder)) + sum(map(len, others))
        assert num_used + source["drops"]["total"] == source["num_rows"] == 2 * (NUM_PAIRS + 3 + 6)
    reason = "less frequent answer of its relation, by data.keep"
    assert read_json(prepared["0"] / "source.json", dict)["drops"]["counts"] == {reason: NUM_PAIRS}


def test_half_a_pair_is_no_pair(prepared: dict[str, Path]) -> None:
    for folder in prepared.values():
        pairs = Counter(e.fields["pair"] for e in read_train(folder) if "pair" in e.fields)
        assert set(pairs.values()) <= {2}
    assert all("pair" in one.fields for one in read_train(prepared["1"]))
    assert not any("pair" in one.fields for one in read_train(prepared["0"]))
    assert Counter("pair" in one.fields for one in read_train(prepared["0.6"])) == {
        True: 36,
        False: 12,
    }


def test_validation_and_test_are_the_same_items_in_all_variants(prepared: dict[str, Path]) -> None:
    for name in ("validation", "test"):
        found = [read_examples(folder / f"{name}.jsonl") for folder in prepared.values()]
        assert found[0] == found[1] == found[2]


def test_of_a_pair_one_is_aligned_and_one_conflicting(prepared: dict[str, Path]) -> None:
    labels = read_json(prepared["0"] / "bias.json", dict)["kept_labels"]
    test = read_examples(prepared["0"] / "test.jsonl")
    for one in test:
        side = "aligned" if one.label == labels[one.fields["relation"]] else "conflicting"
        assert one.fields["bias"] == side
    assert not any("bias" in one.fields for one in read_train(prepared["0"]))


def statement(number: int, *, split: str = "train", **changes: str) -> VisualRow:
    row = VisualRow(
        id=str(number),
        source="made",
        split="train",
        text=f"The cup is on table {number}.",
        answers=frozenset({"True" if number % 2 else "False"}),
        cluster=f"{split} {number}",
        relation="on",
    )
    return replace(row, **changes)


@given(st.sets(st.integers(0, 9)))
def test_a_partner_that_is_gone_is_forgotten(kept: set[int]) -> None:
    rows = [replace(statement(n), partner=str(n ^ 1)) for n in sorted(kept)]
    found = forget_lost_partners(rows)
    assert [one.id for one in found] == [one.id for one in rows]
    for row in found:
        assert row.partner == (str(int(row.id) ^ 1) if int(row.id) ^ 1 in kept else None)


def write_vsr(folder: Path) -> Path:
    """Write captions of one relation, as often true as false, one of a picture of the test."""
    pictures = folder / "pictures"
    pictures.mkdir(parents=True)

    def record(number: int, caption: str, label: int, relation: str = "on") -> dict[str, object]:
        name = f"{number}.png"
        Image.new("RGB", (32, 32), (number, 255 - number, number // 2)).save(pictures / name)
        return {"image": name, "caption": caption, "label": label, "relation": relation}

    train = [record(n, f"The cup is on thing {n}.", n % 2) for n in range(40)]
    test = [record(n, f"The cup is on item {n}.", n % 2) for n in range(50, 60)]
    test += [record(0, "The cup is in the box.", 1, "in")]
    test += [record(61, "The cup is on thing 2.", 1)]
    dev = [record(n, f"The cup is on piece {n}.", n % 2) for n in range(70, 80)]
    for name, rows in (("train", train), ("dev", dev), ("test", test)):
        write_jsonl(folder / f"{name}.jsonl", rows)
    return folder


def configure_vsr(folder: Path, *overrides: str) -> VisualConfig:
    places = (f"data.vsr.path={folder}", f"data.vsr.pictures={folder / 'pictures'}")
    return configure("data.drawn=null", *places, *overrides)


def test_the_seed_labels_a_tie_and_items_stay_the_same(tmp_path: Path) -> None:
    folder = write_vsr(tmp_path / "vsr")
    sides: dict[str, list[str]] = {}
    ids: list[list[str]] = []
    for seed in range(8):
        out = tmp_path / str(seed)
        prepare_rows(configure_vsr(folder, "data.keep=0", f"seed={seed}"), out)
        test = read_examples(out / "test.jsonl")
        sides.setdefault(read_json(out / "bias.json", dict)["kept_labels"]["on"], []).append(
            test[0].fields["bias"]
        )
        ids.append([one.id for one in test])
        assert test[10].fields["bias"] == "unknown"
    assert {label: set(found) for label, found in sides.items()} == {
        "True": {"conflicting"},
        "False": {"aligned"},
    }
    assert all(found == ids[0] for found in ids)


def test_the_audit_says_what_words_tell_and_what_splits_share(tmp_path: Path) -> None:
    config = configure_vsr(write_vsr(tmp_path / "vsr"), "data.keep=0.5")
    prepare_rows(config, tmp_path)
    found = {one.name: one for one in TASK.find_in_data(config, tmp_path)}
    assert all(one.level != "error" for one in found.values())
    shared = found["picture_in_two_splits"].message
    assert shared.startswith("1 pictures stand in train and in test.")
    assert found["caption_with_opposite_label"].count == 1
    fit = found["text_probe_of_relation_in_sample"]
    assert fit.message.startswith("A probe that sees the relation alone is right in 6")
    assert found["text_probe_of_caption_in_sample"].message.startswith(
        "A probe that sees the caption alone is right in 100.0%"
    )
    drops = read_json(tmp_path / "source.json", dict)["drops"]["counts"]
    assert drops == {
        "less frequent answer of its relation, by data.keep": 10,
        "train shares a cluster with what is measured": 1,
    }


def test_validation_that_is_taken_from_training_is_not_biased(tmp_path: Path) -> None:
    folder = write_vsr(tmp_path / "vsr")
    splits = ("data.vsr.splits={train: train, test: test}", "data.validation_share=0.5")
    rows = [
        load_rows(configure_vsr(folder, *splits, f"data.keep={keep}"), tmp_path).rows
        for keep in (1, 0)
    ]
    assert rows[0]["validation"] == rows[1]["validation"]
    assert {row.answer for row in rows[1]["validation"]} == {"True", "False"}
    assert len({row.answer for row in rows[1]["train"]}) == 1


@pytest.mark.parametrize(("keep", "num_rows"), [("0.8", 3137), ("0.6", 2812), ("0", 1857)])
def test_a_run_trains_on_the_published_variants(
    real_vsr: Path, tmp_path: Path, keep: str, num_rows: int
) -> None:
    loaded = load_rows(
        configure("data.drawn=null", f"data.vsr.path={real_vsr / 'zeroshot'}", f"data.keep={keep}"),
        tmp_path,
    )
    counts = loaded.drops.counts
    assert counts["less frequent answer of its relation, by data.keep"] == 3489 - num_rows
    used = sum(map(len, loaded.rows.values()))
    assert used + loaded.drops.total == loaded.num_records == 5051
    assert len(loaded.rows["test"]) == 1222
    assert [one.count for one in loaded.shared if "train and in test" in one.message] == [2]
