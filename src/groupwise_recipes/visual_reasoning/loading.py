"""The rows of a run: of every data set that it names, by split, and what a dry run says of them."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from groupwise.core import DataError, Finding, derive_seed, digest_file, digest_json
from groupwise.data.examples import DropLog
from groupwise.run.preview import estimate_picture
from groupwise.run.task import Estimate
from groupwise_recipes.visual_reasoning.boxes import Size
from groupwise_recipes.visual_reasoning.config import VisualConfig, choose_alignment
from groupwise_recipes.visual_reasoning.probe import find_shared_pictures
from groupwise_recipes.visual_reasoning.rows import LoadedRows, Split, VisualRow, read_rows
from groupwise_recipes.visual_reasoning.scenes import draw_rows
from groupwise_recipes.visual_reasoning.sources import (
    AOkvqaRows,
    CocoBoxes,
    InterleavedBoxes,
    PublishedRows,
    load_aokvqa,
    load_drivingvqa,
    load_rel3d,
    load_spatialsense,
    load_vsr,
)
from groupwise_recipes.visual_reasoning.variants import BiasedVariant, bias_rows

SPLITS: tuple[Split, ...] = ("train", "validation", "test")
_TARGET_TOKENS, _TEXT_TOKENS, _BOXES_TOKENS, _LETTERS_PER_TOKEN = 60, 40, 60, 4
_USUAL_SIZE = (640, 480)
_AOKVQA_FILES: Mapping[Split, str] = {"train": "train", "validation": "val", "test": "test"}


@dataclass(slots=True)
class SplitRows:
    """Rows of a run; all of them and the drops are ``num_records``.

    Attributes:
        rows: by the split that they are used for.
        drops: what is not used, and why.
        num_records: of all data sets.
        shared: pictures that stand in several splits of the data sets.
        variant: what training was biased to; None: it was not.
    """

    rows: dict[Split, list[VisualRow]] = field(
        default_factory=lambda: {split: [] for split in SPLITS}
    )
    drops: DropLog = field(default_factory=DropLog)
    num_records: int = 0
    shared: Sequence[Finding] = ()
    variant: BiasedVariant | None = None


def load_rows(config: VisualConfig, folder: Path) -> SplitRows:
    """Return the rows of a run, read or drawn into a folder.

    Without rows for validation, a share of the training clusters becomes it. Then training is
    biased where the config asks for that. What shares a cluster with the test is in no other split,
    and what shares one with validation is not in training.
    """
    found = SplitRows()
    if config.data.drawn is not None:
        for split, rows in draw_rows(config.data.drawn, folder, seed=config.seed).items():
            found.rows[split] += rows
            found.num_records += len(rows)
    for name, source in config.data.published.items():
        for part in _load(name, source):
            _add(found, part, source, name)
    if not found.rows["validation"]:
        _take_validation(found, config)
    found.shared = find_shared_pictures({**found.rows})
    if config.data.keep is not None:
        _bias(found, config.data.keep, config.seed)
    _keep_apart(found)
    return found


def digest_rows(config: VisualConfig) -> dict[str, str]:
    """Return what the files and pictures of the data sets are known by."""
    try:
        return _digest_sources(config)
    except OSError as error:
        raise DataError(
            f"cannot read {error.filename} ({error.strerror})",
            fix="set the paths of data to where its files are",
        ) from error


def _digest_sources(config: VisualConfig) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, source in config.data.published.items():
        found[f"data.{name}.path"] = digest_file(source.path)
        if source.pictures is not None:
            found[f"data.{name}.pictures"] = digest_file(source.pictures)
        if isinstance(source, AOkvqaRows):
            for kind in ("coco", "interleaved"):
                files = getattr(source, kind)
                found[f"data.{name}.{kind}"] = digest_json(
                    {split: digest_file(path) for split, path in files.items()}
                )
    return found


def _load(name: str, source: PublishedRows) -> list[LoadedRows]:
    path, pictures = source.path, source.pictures
    match name:
        case "vsr":
            return [load_vsr(path, pictures=pictures)]
        case "rel3d":
            return [load_rel3d(path, pictures=pictures)]
        case "spatialsense":
            return [load_spatialsense(path, pictures=pictures)]
        case "drivingvqa":
            return [
                load_drivingvqa(path / f"{split}.json", split=split, pictures=pictures)
                for split in source.splits
            ]
        case "aokvqa":
            assert isinstance(source, AOkvqaRows)
            return [_load_aokvqa(source, split) for split in source.splits]
        case _:
            files = {split: read_rows(path / f"{split}.jsonl") for split in source.splits}
            rows = [replace(row, split=split) for split, found in files.items() for row in found]
            return [LoadedRows(tuple(rows), DropLog(), len(rows))]


def _load_aokvqa(source: AOkvqaRows, split: Split) -> LoadedRows:
    file = source.path / f"aokvqa_v1p0_{_AOKVQA_FILES[split]}.json"
    boxes = None
    if split in source.coco:
        boxes = CocoBoxes(source.coco[split])
    elif split in source.interleaved:
        boxes = InterleavedBoxes(source.interleaved[split])
    return load_aokvqa(file, boxes=boxes, pictures=source.pictures)


def _add(found: SplitRows, part: LoadedRows, source: PublishedRows, name: str) -> None:
    found.num_records += part.num_records
    for drop in part.drops.rows:
        found.drops.add(drop.reason, drop.where)
    for row in part.rows:
        used = source.splits.get(row.split)
        if used is None:
            found.drops.add(f"{name}'s split {row.split} is not used", row.id)
        else:
            found.rows[used].append(replace(row, split=used, cluster=f"{name} {row.cluster}"))


def _bias(found: SplitRows, keep: float, seed: int) -> None:
    variant = bias_rows(found.rows["train"], keep=keep, seed=seed)
    kept = {row.id for row in variant.rows}
    for row in found.rows["train"]:
        if row.id not in kept:
            found.drops.add("less frequent answer of its relation, by data.keep", row.id)
    found.rows["train"], found.variant = list(variant.rows), variant


def _keep_apart(found: SplitRows) -> None:
    taken = {row.cluster for row in found.rows["test"]}
    earlier: tuple[Split, ...] = ("validation", "train")
    for split in earlier:
        rows = found.rows[split]
        for row in rows:
            if row.cluster in taken:
                found.drops.add(f"{split} shares a cluster with what is measured", row.id)
        found.rows[split] = [row for row in rows if row.cluster not in taken]
        taken |= {row.cluster for row in rows}


def _take_validation(found: SplitRows, config: VisualConfig) -> None:
    rows = found.rows["train"]
    clusters = sorted(
        {row.cluster for row in rows}, key=lambda one: derive_seed(config.seed, "validation", one)
    )
    taken = set(clusters[: round(len(clusters) * config.data.validation_share)])
    found.rows["train"] = [row for row in rows if row.cluster not in taken]
    found.rows["validation"] = [
        replace(row, split="validation") for row in rows if row.cluster in taken
    ]


def estimate_run(config: VisualConfig) -> Estimate:
    """Return rows, tokens and sources; what stops the stage ``prepare`` is raised.

    Where scenes are drawn, rows that are read beside them are not looked at.
    """
    drawn, judge = config.data.drawn, choose_alignment(config)
    facts = [("alignment", "not judged" if judge is None else judge.describe())]
    if drawn is None:
        loaded = load_rows(config, Path())
        rows = loaded.rows["train"]
        num_rows = len(rows)
        num_tokens = max((_count_tokens(row, config) for row in rows), default=0)
        sources = {
            name: dict(Counter(row.source for row in found))
            for name, found in loaded.rows.items()
            if found
        }
        facts.append(("rows", _describe_rows(loaded)))
    else:
        # Every relation of drawn scenes is as often true as false.
        kept = 1 if config.data.keep is None else config.data.keep
        num_rows, sources = round((1 + kept) * drawn.num_pairs), {}
        num_tokens = _count_shown(config, (drawn.side, drawn.side)) + _TEXT_TOKENS
    share = 0 if config.sft is None else config.data.warmup_share
    return Estimate(
        num_prompts=round(num_rows * (1 - share)),
        num_sft_rows=round(num_rows * share),
        tokens_per_prompt=num_tokens,
        tokens_per_answer=_TARGET_TOKENS,
        sources=sources,
        facts=facts,
    )


def _count_tokens(row: VisualRow, config: VisualConfig) -> int:
    """Return about how many tokens a row's prompt has, the picture included."""
    prompt = config.prompt if row.is_statement else config.choice_prompt
    letters = len(prompt) + len(row.text) + sum(map(len, row.choices.values()))
    shown = _count_shown(config, row.picture_size or _USUAL_SIZE)
    return shown + letters // _LETTERS_PER_TOKEN + _TEXT_TOKENS


def _count_shown(config: VisualConfig, size: Size) -> int:
    """Return about how many tokens the pictures of a row have, and boxes beside them."""
    num_pictures = 2 if "depth" in config.inputs else 1
    boxes = _BOXES_TOKENS if "boxes" in config.inputs else 0
    return num_pictures * estimate_picture(config, size) + boxes


def _describe_rows(loaded: SplitRows) -> str:
    num_used = sum(map(len, loaded.rows.values()))
    dropped = "".join(f"; {count:,} x {reason}" for reason, count in loaded.drops.counts.items())
    return f"{num_used:,} of {loaded.num_records:,} used{dropped}"
