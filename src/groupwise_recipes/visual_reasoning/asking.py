"""What is asked about a row, and the stage ``prepare``."""

from collections.abc import Sequence
from pathlib import Path
from string import ascii_uppercase
from typing import Any

from groupwise.core import (
    DataError,
    Example,
    Message,
    derive_seed,
    load_config,
    make_example,
    read_json,
    write_json,
)
from groupwise.data.columns import fill_template
from groupwise.data.examples import DropLog, write_examples
from groupwise.rewards import BoxParser
from groupwise_recipes.visual_reasoning.bias import BIAS_NAME, describe_bias, mark_sides
from groupwise_recipes.visual_reasoning.boxes import Size
from groupwise_recipes.visual_reasoning.config import TAGS, VisualConfig, VisualData
from groupwise_recipes.visual_reasoning.inputs import (
    FindFrame,
    find_frames,
    find_row_frame,
    list_pictures,
    prepare_inputs,
    write_places,
)
from groupwise_recipes.visual_reasoning.loading import load_rows
from groupwise_recipes.visual_reasoning.rows import RowError, VisualRow, forget_lost_partners
from groupwise_recipes.visual_reasoning.sources import load_own

_TAGS = tuple(mark for tag in TAGS for mark in (f"<{tag}>", f"</{tag}>"))
_BOXES = BoxParser(words=True)


def prepare_rows(config: VisualConfig, folder: Path) -> None:
    """Write the examples of each split, and of a warm-up; drop what cannot be asked."""
    loaded, find_frame = load_rows(config, folder / "pictures"), find_frames(config)
    drops = loaded.drops
    rows, examples = dict[str, list[VisualRow]](), dict[str, list[Example]]()
    for split, found in loaded.rows.items():
        rows[split], examples[split] = _ask_all(found, config, find_frame, drops, folder)
    labels = loaded.variant and loaded.variant.kept_labels
    examples["test"] = mark_sides(rows["test"], examples["test"], labels)
    if config.sft is not None:
        warmup, train = _split_off(examples["train"], config)
        examples |= {"warmup": warmup, "train": train}
    for name, found in examples.items():
        if not found:
            why = "; ".join(f"{n:,} x {reason}" for reason, n in drops.counts.items())
            fix = f"give more rows (dropped: {why or 'none'})"
            raise DataError(f"the split {name} is empty", fix=fix)
        write_examples(folder / f"{name}.jsonl", found)
    write_json(folder / "source.json", {"num_rows": loaded.num_records, "drops": drops.to_json()})
    write_json(folder / BIAS_NAME, describe_bias(loaded, rows["train"], rows["test"]))


def read_labelled_rows(
    config: VisualConfig, prepared: Path, path: Path, folder: Path
) -> tuple[list[Example], DropLog]:
    """Return the questions about labelled rows of other data."""
    if path.suffix in (".yaml", ".yml"):
        data = load_config(VisualData, path)
        loaded = load_rows(config.model_copy(update={"data": data}), folder / "pictures")
        rows, drops = loaded.rows.pop("test"), loaded.drops
        for split, others in loaded.rows.items():
            for row in others:
                drops.add(f"used for {split}, not measured", row.id)
    else:
        own = load_own(path)
        rows, drops = list(own.rows), own.drops
    asked, examples = _ask_all(rows, config, find_frames(config), drops, folder)
    labels = read_json(prepared / BIAS_NAME, dict).get("kept_labels")
    return mark_sides(asked, examples, labels), drops


def _ask_all(
    rows: Sequence[VisualRow],
    config: VisualConfig,
    find_frame: FindFrame,
    drops: DropLog,
    folder: Path,
) -> tuple[list[VisualRow], list[Example]]:
    """Return the rows that can be asked about, each with its question; drop the others."""
    kept, frames = list[VisualRow](), dict[tuple[str, str], Size | None]()
    for row in rows:
        try:
            _check_row(row, config)
            whole = prepare_inputs(row, config.inputs, folder / "depth")
            frames[row.source, row.id] = find_row_frame(row, find_frame)
        except DataError as fault:
            reason = fault.reason if isinstance(fault, RowError) else "unreadable picture"
            drops.add(reason, f"{row.id}: {fault}")
        else:
            kept.append(whole)
    asked = forget_lost_partners(kept)
    return asked, [ask_about_row(row, config, frames[row.source, row.id]) for row in asked]


def ask_about_row(row: VisualRow, config: VisualConfig, frame: Size | None) -> Example:
    """Return what a policy is asked about a row with a picture."""
    label, text, fields = _word_question(row, config)
    reasonings = [one.text for one in row.reasonings if one.answer is None and _is_plain(one.text)]
    return make_example(
        [Message("user", text + write_places(row, config.inputs, frame))],
        cluster=row.cluster,
        pictures=list_pictures(row, config.inputs),
        label=label,
        fields={
            "source": row.source,
            **fields,
            **({} if row.relation is None else {"relation": row.relation}),
            **({} if frame is None else _describe_boxes(row, frame)),
            **({"pair": f"{row.source} {min(row.id, row.partner)}"} if row.partner else {}),
            **({"reasonings": reasonings} if reasonings else {}),
        },
    )


def _check_row(row: VisualRow, config: VisualConfig) -> None:
    """Raise RowError for a row that cannot be asked about."""
    if row.picture is None:
        raise RowError("no picture", f"row {row.id!r} has no picture")
    if row.is_statement:
        return
    if not config.data.has_choices:
        raise RowError("no statement", f"row {row.id!r} has choices")
    keys = sorted(row.choices)
    if "".join(keys) != ascii_uppercase[: len(keys)]:
        what = f"row {row.id!r} has choices that are not lettered in order"
        raise RowError("choices without letters", what, got=keys, expected="A, B, …")


def _word_question(row: VisualRow, config: VisualConfig) -> tuple[str, str, dict[str, Any]]:
    """Return the label of a row, what is asked, and the fields that say what kind it is of."""
    if row.is_statement:
        text = fill_template(config.prompt, {"text": row.text}, file="the prompt")
        return row.answer, text, {"statement": row.text}
    keys = sorted(row.choices)
    choices = "\n".join(f"{key}. {row.choices[key]}" for key in keys)
    given = {"text": row.text, "choices": choices}
    text = fill_template(config.choice_prompt, given, file="the prompt for choices")
    return ", ".join(sorted(row.answers)), text, {"options": [row.choices[key] for key in keys]}


def _describe_boxes(row: VisualRow, frame: Size) -> dict[str, Any]:
    return {
        "boxes": [[b.x1, b.y1, b.x2, b.y2, b.label] for b in row.boxes or ()],
        "picture_size": list(row.picture_size or ()),
        "seen_size": list(frame),
        **({"things": list(row.things)} if row.things else {}),
    }


def _is_plain(text: str) -> bool:
    """Return whether a reasoning has neither tags nor boxes: they would be the answer's own."""
    return not any(mark in text for mark in _TAGS) and not _BOXES.parse(text).value


def _split_off(
    examples: Sequence[Example], config: VisualConfig
) -> tuple[list[Example], list[Example]]:
    """Return the examples of the warm-up and those of GRPO; a cluster is on one side."""

    def place(cluster: str) -> int:
        return derive_seed(config.seed, "warmup", cluster)

    clusters = sorted({one.cluster for one in examples}, key=place)
    warmup = set(clusters[: round(len(clusters) * config.data.warmup_share)])
    return (
        [one for one in examples if one.cluster in warmup],
        [one for one in examples if one.cluster not in warmup],
    )
