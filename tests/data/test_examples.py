import json
import random
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from mixed_prompts import converse
from real_data import find_real
from scenes import copy_scene, draw_scene
from scipy.sparse.csgraph import connected_components

from groupwise.core import (
    ConfigError,
    DataError,
    Example,
    Message,
    Picture,
    make_example,
    read_jsonl,
)
from groupwise.data import near
from groupwise.data.examples import DropLog, read_examples, write_examples
from groupwise.data.near import Sight, drop_near, join_by_files, join_near_duplicates
from groupwise.data.splits import split_by_shares
from groupwise_recipes.demo_selection.vqa import PUBLISHED_VQA, FewShotForm
from groupwise_recipes.on_task.screenshots import Screenshot, split_by_fold, split_by_session


@given(st.lists(st.tuples(st.sampled_from("abc"), st.text(max_size=3))))
def test_counts_and_rows_add_up(drops: list[tuple[str, str]]) -> None:
    log = DropLog()
    for reason, where in drops:
        log.add(reason, where)
    assert log.total == len(drops) == sum(log.counts.values()) == len(log.rows)
    assert log.to_json() == {
        "total": len(drops),
        "counts": log.counts,
        "rows": [{"reason": reason, "where": where} for reason, where in drops],
    }


def test_the_most_frequent_reason_comes_first() -> None:
    log = DropLog()
    for reason in ("b", "a", "c", "c"):
        log.add(reason, "x")
    assert list(log.counts.items()) == [("c", 2), ("a", 1), ("b", 1)]


PICTURES = [Picture(Path(f"{name}.png"), name * 32) for name in "abc"]
TURNS = st.lists(st.one_of(st.text(max_size=4), st.sampled_from(PICTURES)), max_size=5)


def make(turns: list[list[str | Picture]]) -> Example:
    prompt = [Message("system", "s"), *converse(turns)]
    return make_example(prompt, cluster="g", fields={"k": [1]})


@given(st.lists(TURNS, min_size=1, max_size=3))
def test_what_is_written_is_read_again(tmp_path_factory: pytest.TempPathFactory, turns):
    path = tmp_path_factory.mktemp("files") / "rows.jsonl"
    example = make(turns)
    write_examples(path, [example])
    [read] = read_examples(path)
    assert read == example
    assert read.id == make(turns).id


def test_pictures_are_found_from_the_folder_of_the_file(tmp_path: Path):
    (tmp_path / "one" / "pictures").mkdir(parents=True)
    pictures = [Picture(tmp_path / "one" / "pictures" / f"{n}.png", str(n)) for n in range(3)]
    prompt = [Message("user", [pictures[0], "a", pictures[1], "b", pictures[2]])]
    write_examples(tmp_path / "one" / "rows.jsonl", [make_example(prompt, cluster="g")])
    shutil.move(tmp_path / "one", tmp_path / "two")
    [read] = read_examples(tmp_path / "two" / "rows.jsonl")
    folder = tmp_path / "two" / "pictures"
    assert [picture.path for picture in read.pictures] == [folder / f"{n}.png" for n in range(3)]


def test_rows_whose_pictures_open_the_first_turn_are_those_of_before(tmp_path: Path):
    row = {
        "id": "25c6be96a824337f6609c3bd4ef45eef",
        "cluster": "g",
        "label": "yes",
        "prompt": [
            {"role": "system", "text": "s"},
            {"role": "user", "text": "q"},
            {"role": "assistant", "text": "a"},
            {"role": "user", "text": "r"},
        ],
        "pictures": [{"path": f"{n}.png", "digest": n * 32} for n in "ab"],
        "fields": {"k": [1, None, "在"]},
    }
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps(row, ensure_ascii=False) + "\n", encoding="utf-8")
    [example] = read_examples(path)
    assert example.prompt[1].parts == (*PICTURES[:2], "q")
    again = make_example(
        example.prompt, cluster="g", label=example.label, fields=dict(example.fields)
    )
    assert again.id == row["id"]
    write_examples(path, [example])
    assert json.loads(path.read_text(encoding="utf-8")) == row


@pytest.mark.parametrize(
    "turn",
    [{"role": "user"}, {"role": "user", "text": 3}, {"role": "user", "parts": [{"path": "a.png"}]}],
)
def test_a_row_that_is_no_example_is_named(tmp_path: Path, turn: dict[str, object]):
    row = {"id": "i", "cluster": "g", "label": None, "prompt": [turn], "pictures": [], "fields": {}}
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps(row) + "\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"rows\.jsonl row 1 is not an example"):
        read_examples(path)


def make_item(name, *, label="net", question="What is it? "):
    return make_example(
        [Message("user", "What is it?")],
        cluster=name,
        pictures=[Picture(name, name)],
        label=label,
        fields={"question": question},
    )


def test_the_published_form_alternates_pictures_and_texts_in_one_turn():
    asked, first, last = make_item("q"), make_item("a"), make_item("b", label="mesh")
    (turn,) = PUBLISHED_VQA.write(asked, [first, last])
    pictures = [Picture(name, name) for name in "abq"]
    assert turn == Message(
        "user",
        [
            pictures[0],
            "Question:What is it? Short answer:net",
            pictures[1],
            "Question:What is it? Short answer:mesh",
            pictures[2],
            "Question:What is it? Short answer:",
        ],
    )
    assert PUBLISHED_VQA.write(asked, [last, first]) != (turn,), "their order counts"


def test_a_form_of_ones_own():
    form = FewShotForm("Q: {question}\nA:", before_answer=" ", between="\n\n", system="Be short.")
    system, turn = form.write(make_item("q", label=None), [make_item("a")])
    assert (system.role, system.text) == ("system", "Be short.")
    assert [part for part in turn.parts if isinstance(part, str)] == [
        "Q: What is it?\nA: net\n\n",
        "Q: What is it?\nA:",
    ]


def test_a_form_says_where_pictures_stand():
    form = FewShotForm("{question}{pictures}: ", between="; ")
    (turn,) = form.write(make_item("q", question="Which {pictures}?"), [make_item("a")])
    assert turn.parts == (
        "What is it?",
        Picture("a", "a"),
        ": net; Which {pictures}?",
        Picture("q", "q"),
        ": ",
    )


def test_what_cannot_be_shown_is_named():
    with pytest.raises(DataError, match="has no label"):
        PUBLISHED_VQA.write(make_item("q"), [make_item("a", label=None)])
    with pytest.raises(DataError, match="has no field question"):
        PUBLISHED_VQA.write(make_item("q", question=None), [])
    with pytest.raises(DataError, match=r"no \{question\}"):
        FewShotForm("Question: Short answer:")


CONTENTS = st.sampled_from([b"a", b"b", b"cc", b"dd", b"ee", b"longer"])
CLUSTERS = st.lists(st.lists(CONTENTS, max_size=3), max_size=9)


def write_clusters(folder: Path, clusters: list[list[bytes]]) -> dict[str, list[Path]]:
    files: dict[str, list[Path]] = {}
    for number, contents in enumerate(clusters):
        files[f"g{number}"] = []
        for place, content in enumerate(contents):
            path = folder / f"{number}-{place}.jpg"
            path.write_bytes(content)
            files[f"g{number}"].append(path)
    return files


@given(clusters=CLUSTERS)
def test_sets_are_the_connected_components(
    tmp_path_factory: pytest.TempPathFactory, clusters: list[list[bytes]]
) -> None:
    joined = join_by_files(write_clusters(tmp_path_factory.mktemp("files"), clusters))
    shared = np.array([[bool({*one} & {*two}) for two in clusters] for one in clusters], ndmin=2)
    parts = connected_components(shared)[1].tolist() if clusters else []
    expected = {f"g{n}": f"g{parts.index(part)}" for n, part in enumerate(parts)}
    assert joined == expected


def test_a_chain_is_one_set_named_after_its_first_cluster(tmp_path: Path) -> None:
    clusters = [[b"x"], [b"a"], [b"c", b"b"], [b"a", b"b"], []]
    joined = join_by_files(write_clusters(tmp_path, clusters))
    assert joined == {"g0": "g0", "g1": "g1", "g2": "g1", "g3": "g1", "g4": "g4"}


def test_a_file_that_is_gone_joins_nothing(tmp_path: Path) -> None:
    files = write_clusters(tmp_path, [[b"a"], [b"a"]])
    files["g0"][0].unlink()
    assert join_by_files(files) == {"g0": "g0", "g1": "g1"}


def draw_sessions(folder: Path, num_sessions: int) -> list[Sight]:
    """Return two screens of each session, all different."""
    return [
        Sight(draw_scene(folder / f"{n}-{k}.png", 2 * n + k), f"s{n}")
        for n in range(num_sessions)
        for k in range(2)
    ]


def test_sessions_with_near_duplicates_are_joined_also_in_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(near, "MAX_JOINED_SHARE", 0.5)
    sights = draw_sessions(tmp_path, 10)
    chain = [
        Sight(copy_scene(sights[2].path, tmp_path / "a.jpg"), "s7"),
        Sight(copy_scene(sights[15].path, tmp_path / "b.jpg"), "s9"),
    ]
    joined = join_near_duplicates([*sights, *chain])
    assert {name for name, head in joined.items() if head == "s1"} == {"s1", "s7", "s9"}
    others = {name: head for name, head in joined.items() if head != "s1"}
    assert all(name == head for name, head in others.items())


def test_joining_that_runs_through_the_data_is_refused(tmp_path: Path) -> None:
    sights = draw_sessions(tmp_path, 10)
    copy = Sight(copy_scene(sights[0].path, tmp_path / "copy.jpg"), "s5")
    with pytest.raises(DataError, match=r"5 of 21 pictures in one cluster.*drop or warn"):
        join_near_duplicates([*sights, copy])


def test_copies_are_dropped_from_what_is_kept_less(tmp_path: Path) -> None:
    train, test = draw_sessions(tmp_path, 4)[:4], draw_sessions(tmp_path, 4)[4:]
    copy = Sight(copy_scene(test[1].path, tmp_path / "copy.jpg"), "s0")
    splits = {"train": [*train, copy], "test": test}
    dropped: list[tuple[Sight, str]] = []
    kept = drop_near(
        splits, list_paths=lambda sight: [sight.path], report=lambda *one: dropped.append(one)
    )
    assert kept == {"train": train, "test": test}
    assert dropped == [(copy, "train")]


Make = Callable[..., Screenshot]

share_lists = st.lists(st.integers(1, 9), min_size=1, max_size=4)
session_lists = st.lists(
    st.tuples(st.sampled_from(["document", "video", "game", None]), st.integers(1, 4)),
    min_size=1,
    max_size=40,
)


def list_screens(make: Make, sessions: list[tuple[str | None, int]]) -> list[Screenshot]:
    return [
        make(f"{number}-{frame}.png", session=f"s{number}", activity=activity)
        for number, (activity, num_frames) in enumerate(sessions)
        for frame in range(num_frames)
    ]


def name_shares(parts: list[int]) -> dict[str, float]:
    return {f"split{i}": part / sum(parts) for i, part in enumerate(parts)}


@given(session_lists, share_lists, st.integers(0, 99))
def test_sessions_stay_whole_and_counts_are_exact(
    make_screen: Make, sessions: list[tuple[str | None, int]], parts: list[int], seed: int
) -> None:
    screens, shares = list_screens(make_screen, sessions), name_shares(parts)
    assume(min(shares.values()) * len(sessions) >= 1)
    splits = split_by_session(screens, shares=shares, seed=seed)
    sides = {name: {screen.session for screen in split} for name, split in splits.items()}
    assert sum(map(len, sides.values())) == len(sessions) == len(set().union(*sides.values()))
    assert Counter(s for split in splits.values() for s in split) == Counter(screens)
    for name, share in shares.items():
        assert abs(len(sides[name]) - share * len(sessions)) < 1 + 1e-6


@given(session_lists, st.integers(0, 99), st.randoms(use_true_random=False))
def test_the_order_of_rows_changes_no_side(
    make_screen: Make, sessions: list[tuple[str | None, int]], seed: int, rng: random.Random
) -> None:
    screens = list_screens(make_screen, sessions)
    assume(len(sessions) >= 4)
    shares = {"train": 0.5, "test": 0.5}
    first = split_by_session(screens, shares=shares, seed=seed)
    rng.shuffle(screens)
    second = split_by_session(screens, shares=shares, seed=seed)
    assert {name: set(split) for name, split in first.items()} == {
        name: set(split) for name, split in second.items()
    }


def test_activities_are_spread_evenly(make_screen: Make) -> None:
    sessions = [(name, 1) for name in ("document", "video", "game", "shop") for _ in range(20)]
    screens = list_screens(make_screen, sessions)
    for seed in range(10):
        splits = split_by_session(
            screens, shares={"train": 0.7, "dev": 0.1, "test": 0.2}, seed=seed
        )
        for name, num in (("train", 14), ("dev", 2), ("test", 4)):
            counts = Counter(screen.activity for screen in splits[name])
            assert all(abs(counts[activity] - num) <= 1 for activity, _ in sessions)


def test_another_seed_gives_other_sides(make_screen: Make) -> None:
    screens = list_screens(make_screen, [("document", 1)] * 20)
    sides = {
        tuple(
            s.session for s in split_by_session(screens, shares={"a": 0.5, "b": 0.5}, seed=i)["a"]
        )
        for i in range(5)
    }
    assert len(sides) == 5


@pytest.mark.parametrize(
    "shares", [{}, {"a": 0.5}, {"a": 1.5, "b": -0.5}, {"a": 1.0, "b": 0.0}, {"a": float("nan")}]
)
def test_shares_that_are_none_are_refused(make_screen: Make, shares: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match="add up to 1"):
        split_by_session([make_screen()], shares=shares, seed=0)


def test_an_empty_split_is_an_error(make_screen: Make) -> None:
    screens = list_screens(make_screen, [("document", 9)] * 3)
    with pytest.raises(DataError, match="'test' would be empty; got 3 cluster"):
        split_by_session(screens, shares={"train": 0.95, "test": 0.05}, seed=0)


def test_folds_name_the_sides_and_the_others_are_left_out(make_screen: Make) -> None:
    screens = [make_screen(f"{i}.png", session=f"s{i}", fold=i % 4) for i in range(12)]
    splits = split_by_fold(screens, {"train": [0, 1], "test": (3,)})
    assert {name: {s.fold for s in split} for name, split in splits.items()} == {
        "train": {0, 1},
        "test": {3},
    }
    assert [len(split) for split in splits.values()] == [6, 3]


def test_folds_that_cannot_be_used_are_errors(make_screen: Make) -> None:
    screens = [make_screen(f"{i}.png", session=f"s{i}", fold=i % 2) for i in range(4)]
    with pytest.raises(ConfigError, match="fold 1 is in two splits; got 'train' and 'test'"):
        split_by_fold(screens, {"train": [0, 1], "test": [1]})
    with pytest.raises(ConfigError, match="'test' names no fold"):
        split_by_fold(screens, {"train": [0, 1], "test": []})
    with pytest.raises(DataError, match=r"fold 4 of split 'test' has no screens; got folds \[0, 1"):
        split_by_fold(screens, {"train": [0, 1], "test": [4]})
    with pytest.raises(DataError, match="1 of 5 screens have no fold"):
        split_by_fold([*screens, make_screen("x.png")], {"train": [0], "test": [1]})


def test_a_session_in_two_folds_of_two_splits_is_an_error(make_screen: Make) -> None:
    screens = [make_screen("a.png", fold=0), make_screen("b.png", fold=1)]
    with pytest.raises(DataError, match="session s is in two splits; got 'train' and 'test'"):
        split_by_fold(screens, {"train": [0], "test": [1]})
    assert len(split_by_fold(screens, {"train": [0, 1]})["train"]) == 2


def test_folds_of_the_real_set_share_no_session(make_screen: Make) -> None:
    rows = read_jsonl(find_real("screenagent") / "index.jsonl")
    screens = [make_screen(r["image"], session=r["session"], fold=r["fold"]) for r in rows]
    splits = split_by_fold(screens, {"train": [0, 1, 2], "test": [3]})
    assert [len(split) for split in splits.values()] == [510, 147]


@given(
    st.dictionaries(st.text(max_size=4), st.sampled_from(["a", "b", "c"]), min_size=4),
    st.integers(0, 99),
)
def test_kinds_are_about_even_in_every_share(kinds: dict[str, str], seed: int) -> None:
    side = split_by_shares(kinds, shares={"large": 0.75, "small": 0.25}, seed=seed)
    assert side == split_by_shares(
        dict(reversed(kinds.items())), shares={"large": 0.75, "small": 0.25}, seed=seed
    )
    assert set(side) == set(kinds)
    for kind in set(kinds.values()):
        members = [name for name in kinds if kinds[name] == kind]
        num_small = sum(side[name] == "small" for name in members)
        assert abs(num_small - 0.25 * len(members)) <= 1.5
