"""What is asked about a row, what is taught about it, and the stage ``prepare``."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from groupwise.core import (
    DataError,
    Example,
    Message,
    derive_seed,
    make_example,
    read_picture,
    write_json,
)
from groupwise.data import DropLog, fill_template, read_examples, write_examples
from groupwise.rewards import Box, LabelParser
from groupwise.training import SftRow
from groupwise_drawn.relations import INVERSES, Relation
from groupwise_recipes.visual_reasoning.bias import BIAS_NAME, describe_bias, mark_sides
from groupwise_recipes.visual_reasoning.config import LABELS, TAGS, VisualConfig
from groupwise_recipes.visual_reasoning.loading import load_rows
from groupwise_recipes.visual_reasoning.reasoning import write_reasoning
from groupwise_recipes.visual_reasoning.rows import TRUE, VisualRow, forget_lost_partners

PARSER = LabelParser(tags=TAGS, labels=LABELS)


def prepare_rows(config: VisualConfig, folder: Path) -> None:
    """Write the examples of each split, and those of the warm-up; those without a picture go."""
    loaded = load_rows(config, folder / "pictures")
    drops, rows = loaded.drops, dict[str, list[VisualRow]]()
    for split, found in loaded.rows.items():
        rows[split] = forget_lost_partners([row for row in found if _can_be_asked(row, drops)])
        if config.data.published and any(row.boxes for row in rows[split]):
            raise DataError(
                "rows have boxes, which are not put into the coordinates that a model sees yet",
                fix="leave out the boxes of rows that are read",
            )
    examples = {
        split: [ask_about_row(row, config.prompt) for row in found] for split, found in rows.items()
    }
    examples["test"] = mark_sides(rows["test"], examples["test"], loaded.variant)
    warmup, train = _split_off(examples["train"], config)
    for name, found in (examples | {"warmup": warmup, "train": train}).items():
        if not found:
            raise DataError(f"the split {name} is empty", fix="give more rows")
        write_examples(folder / f"{name}.jsonl", found)
    write_json(folder / "source.json", {"num_rows": loaded.num_records, "drops": drops.to_json()})
    write_json(folder / BIAS_NAME, describe_bias(loaded, rows["train"], rows["test"]))


def ask_about_row(row: VisualRow, prompt: str) -> Example:
    """Return what a policy is asked about a row with a picture."""
    assert row.picture is not None
    fields = {
        "source": row.source,
        "statement": row.text,
        "relation": row.relation,
        "boxes": row.boxes and [[b.x1, b.y1, b.x2, b.y2, b.label] for b in row.boxes],
        "picture_size": row.picture_size and list(row.picture_size),
        "pair": row.partner and f"{row.source} {min(row.id, row.partner)}",
    }
    return make_example(
        [Message("user", fill_template(prompt, {"text": row.text}, file="the prompt"))],
        cluster=row.cluster,
        pictures=[read_picture(row.picture)],
        label=row.answer,
        fields={name: value for name, value in fields.items() if value is not None},
    )


def write_target(example: Example, targets: str) -> str:
    """Return the answer to teach.

    Args:
        example: of a drawn scene, or with ``targets`` ``answer`` of any row.
        targets: as of ``WarmupSettings``.

    Raises:
        DataError: if the example has nothing to reason with.
    """
    label = str(example.label)
    if targets == "answer":
        return PARSER.write(label)
    boxes = read_boxes(example)
    relation: Relation = example.fields.get("relation", "")
    if len(boxes) != 2 or relation not in INVERSES:
        raise DataError(
            f"example {example.id} has no reasoning to teach",
            got=f"{len(boxes)} boxes and the relation {relation!r}",
            fix="set sft.targets: answer",
        )
    said = write_reasoning(
        boxes[0],
        relation,
        boxes[1],
        is_true=label == TRUE,
        frame=tuple(example.fields["picture_size"]) if targets == "boxes" else None,
        language="en",
    )
    return f"<think>{said}</think><answer>{label}</answer>"


def write_answer(example: Example, label: str, targets: str) -> str:
    """Return the answer that says ``label``, with the reasoning that goes with it."""
    return write_target(replace(example, label=label), targets)


def read_boxes(example: Example) -> list[Box]:
    """Return the reference boxes of an example; none if it has none."""
    return [Box(*row) for row in example.fields.get("boxes", ())]


def read_warmup(folder: Path) -> list[Example]:
    """Return the examples of the warm-up."""
    return read_examples(folder / "warmup.jsonl")


def make_warmup_rows(examples: Sequence[Example], targets: str) -> list[SftRow]:
    """Return what the warm-up teaches."""
    return [SftRow(example, write_target(example, targets)) for example in examples]


def _can_be_asked(row: VisualRow, drops: DropLog) -> bool:
    if row.picture is None:
        drops.add("no picture", row.id)
    elif not row.is_statement:
        drops.add("no statement", row.id)
    else:
        return True
    return False


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
