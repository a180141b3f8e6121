"""The prepare step: screens into splits, pictures stored small, pairs made."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from groupwise.core import (
    DataError,
    Example,
    Message,
    Picture,
    derive_seed,
    make_example,
    read_json,
    read_jsonl,
    store_picture,
    write_json,
    write_jsonl,
)
from groupwise.data.examples import DropLog, write_examples
from groupwise.data.near import Sight, drop_near, join_near_duplicates
from groupwise.data.splits import drop_shared
from groupwise.serving import Request
from groupwise_drawn.desktops.sets import write_desktops
from groupwise_recipes.on_task.config import DRAWN, OnTaskConfig, OnTaskData
from groupwise_recipes.on_task.pairs import Pair, make_pairs
from groupwise_recipes.on_task.prompt import make_pair_example
from groupwise_recipes.on_task.screenshots import (
    LoadedScreens,
    Screenshot,
    load_screenshots,
    read_screen,
    split_by_fold,
    split_by_session,
)
from groupwise_recipes.on_task.words import add_words, open_words, write_reader


def prepare_screens(config: OnTaskConfig, folder: Path) -> None:
    """Write ``warmup.jsonl`` (screens) and ``{train,validation,test}.jsonl`` (examples)."""
    data = config.data
    drawn = add_words(_draw(config, folder), config, folder) if data.is_drawing else None
    real = (
        add_words(load_screenshots(data.root, allow_outside=data.allow_outside), config, folder)
        if data.root is not None
        else None
    )
    write_reader(config, folder)
    main = real or drawn
    assert main is not None
    splits = split_screens(main, data, seed=config.seed)
    extra = [replace(s, source=DRAWN) for s in drawn.screens] if drawn and real else []
    sources = count_sources(splits, None if real else DRAWN)
    sources["warmup"] += Counter({DRAWN: len(extra)} if extra else {})
    warmup = [*splits.pop("warmup"), *extra]
    stored = {
        name: _store(screens, folder, data.stored_pixels)
        for name, screens in {**splits, "warmup": warmup}.items()
    }
    write_jsonl(folder / "warmup.jsonl", [_to_row(s, folder) for s in stored.pop("warmup")])
    num_repeated = 0
    for name, screens in stored.items():
        pairs = cross_screens(screens, config, split=name)
        examples = [make_pair_example(pair, config) for pair in pairs]
        unique = list({example.id: example for example in examples}.values())
        num_repeated += len(examples) - len(unique)
        write_examples(folder / f"{name}.jsonl", unique)
    source = {"num_rows": main.num_rows, "drops": main.drops.to_json(), "sources": sources}
    write_json(folder / "source.json", {**source, "num_repeated_pairs": num_repeated})


def split_screens(
    loaded: LoadedScreens, data: OnTaskData, *, seed: int
) -> dict[str, list[Screenshot]]:
    """Return the screens by split, the warm-up's among them; a picture is in one split only."""
    screens = _join(loaded.screens, data)
    splits = drop_shared(
        _split(screens, data, seed=seed),
        list_keys=lambda screen: [screen.picture.digest],
        report=_note_drop(loaded.drops, "picture of another split"),
    )
    if data.near_duplicates == "drop":
        splits = drop_near(
            splits,
            list_paths=lambda screen: [screen.picture.path],
            report=_note_drop(loaded.drops, "near duplicate of another split"),
            mirrored=data.mirror_invariant,
        )
    for name, kept in splits.items():
        _refuse_empty(name, kept)
    return {"warmup": splits["train"], **splits}


def count_sources(
    splits: Mapping[str, Sequence[Screenshot]], source: str | None
) -> dict[str, Counter[str]]:
    """Return how many screens of each split come from where; from ``source``, if given."""
    return {
        name: Counter(source or screen.source for screen in screens)
        for name, screens in splits.items()
    }


def describe_sources(sources: Mapping[str, Mapping[str, int]]) -> list[str]:
    """Return a line per split: each source with its number of screens and its share of them."""
    return [
        f"{split}: "
        + ", ".join(
            f"{name} {count:,} ({count / sum(counts.values()):.1%})"
            for name, count in sorted(counts.items())
        )
        for split, counts in sources.items()
    ]


def read_sources(folder: Path) -> dict[str, dict[str, int]]:
    """Return the number of screens by source and split that ``prepare_screens`` counted."""
    return read_json(folder / "source.json", dict)["sources"]


def read_warmup(folder: Path) -> list[Screenshot]:
    """Return the warm-up screens that ``prepare_screens`` wrote."""
    return [_from_row(row, folder) for row in read_jsonl(folder / "warmup.jsonl")]


def ask_about_screen(config: OnTaskConfig, request: Request, folder: Path) -> Example:
    """Return the question about a row's one screen and its task."""
    if len(request.pictures) != 1:
        raise DataError("a row needs one screenshot", got=len(request.pictures))
    screen = open_words(config.data.screen_words)(read_screen(request.row, request.pictures[0]))
    path = folder / f"{screen.picture.digest}.png"
    picture = store_picture(screen.picture, path, max_pixels=config.data.stored_pixels)
    stored = replace(screen, picture=picture, time_s=None)
    pair = Pair(stored, screen.task, screen.activity, None, screen.session)
    return make_pair_example(pair, config)


def read_labelled_screens(
    config: OnTaskConfig, path: Path, folder: Path
) -> tuple[list[Example], DropLog]:
    """Return the questions about the labelled screens of another folder."""
    loaded = load_screenshots(path, allow_outside=config.data.allow_outside)
    loaded = add_words(loaded, config, folder)
    for screen in loaded.screens:
        if screen.label is None:
            loaded.drops.add("no label", str(screen.picture.path))
    labelled = [one for one in loaded.screens if one.label]
    labelled = _store(labelled, folder, config.data.stored_pixels)
    if not labelled:
        raise DataError(f"{path} has no labelled screen", fix="give its rows a label")
    found: dict[str, Example] = {}
    for pair in make_pairs(labelled, seed=0):
        example = make_pair_example(pair, config)
        if example.id in found:
            loaded.drops.add("repeats another row", str(pair.screen.picture.path))
        found.setdefault(example.id, example)
    return list(found.values()), loaded.drops


def show_warmup(folder: Path) -> list[Example]:
    """Return an example for each warm-up screen, for what looks at pictures."""
    return [
        make_example(
            [Message("user", screen.task)], cluster=screen.session, pictures=[screen.picture]
        )
        for screen in read_warmup(folder)
    ]


def _draw(config: OnTaskConfig, folder: Path) -> LoadedScreens:
    drawn = config.data.drawn
    root = folder / "drawn"
    write_desktops(
        root,
        num_sessions=drawn.num_sessions,
        screens_per_session=drawn.screens_per_session,
        seed=derive_seed(config.seed, "desktops"),
        size=(drawn.width, drawn.height),
        clutter=drawn.clutter,
        languages=drawn.languages,
        activities=drawn.activities,
    )
    return load_screenshots(root)


def _split(
    screens: Sequence[Screenshot], data: OnTaskData, *, seed: int
) -> dict[str, list[Screenshot]]:
    shares = data.list_shares()
    if data.train_folds is None or data.test_folds is None:
        return split_by_session(screens, shares=shares, seed=seed)
    by_fold = split_by_fold(screens, {"rest": data.train_folds, "test": data.test_folds})
    return {
        "test": by_fold["test"],
        **split_by_session(by_fold["rest"], shares=shares, seed=seed),
    }


def _note_drop(drops: DropLog, reason: str) -> Callable[[Screenshot, str], None]:
    return lambda screen, split: drops.add(reason, f"{screen.picture.path} ({split})")


def _join(screens: Sequence[Screenshot], data: OnTaskData) -> Sequence[Screenshot]:
    """Return the screens with one session for those whose screens look alike, if that is wanted."""
    if data.near_duplicates != "join":
        return screens
    sights = [Sight(screen.picture.path, screen.session) for screen in screens]
    joined = join_near_duplicates(sights, mirrored=data.mirror_invariant)
    return [replace(screen, session=joined[screen.session]) for screen in screens]


def _refuse_empty(split: str, rows: Sequence[object]) -> None:
    if not rows:
        raise DataError(f"the split {split} is empty", fix="use more sessions or other shares")


def cross_screens(screens: Sequence[Screenshot], config: OnTaskConfig, *, split: str) -> list[Pair]:
    """Return the pairs of a split."""
    pairs = make_pairs(
        screens,
        seed=derive_seed(config.seed, "pairs", split),
        pairs_per_screen=config.data.pairs_per_screen,
    )
    _refuse_empty(split, pairs)
    return pairs


def _store(screens: Sequence[Screenshot], folder: Path, max_pixels: int) -> list[Screenshot]:
    unique = {screen.picture.digest: screen.picture for screen in screens}

    def store(picture: Picture) -> Picture:
        path = folder / "pictures" / f"{picture.digest}.png"
        return store_picture(picture, path, max_pixels=max_pixels)

    with ThreadPoolExecutor() as pool:
        known = dict(zip(unique, pool.map(store, unique.values()), strict=True))
    return [replace(screen, picture=known[screen.picture.digest]) for screen in screens]


def _to_row(screen: Screenshot, folder: Path) -> dict[str, Any]:
    row = asdict(screen)
    del row["time_s"]  # nothing of the warm-up is looked at in time
    row["picture"] = {
        "path": screen.picture.path.relative_to(folder).as_posix(),
        "digest": screen.picture.digest,
    }
    return row


def _from_row(row: Mapping[str, Any], folder: Path) -> Screenshot:
    picture = Picture(folder / row["picture"]["path"], row["picture"]["digest"])
    return Screenshot(**{**row, "picture": picture})
