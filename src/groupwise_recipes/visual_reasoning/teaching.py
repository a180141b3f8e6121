"""What the warm-up teaches: where things are, what follows from it, and the answer.

Before it a tiny base learns to see, from the same pictures.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from groupwise.core import DataError, Example, Finding, Message, make_example
from groupwise.data.examples import read_examples
from groupwise.rewards import Box
from groupwise.training.settings import SftRow
from groupwise_drawn.relations import INVERSES, Relation
from groupwise_recipes.visual_reasoning.answers import QUESTION_PARSER
from groupwise_recipes.visual_reasoning.boxes import Size, convert_box, write_box
from groupwise_recipes.visual_reasoning.reasoning import order_boxes, write_reasoning
from groupwise_recipes.visual_reasoning.rows import TRUE
from groupwise_recipes.visual_reasoning.scenes import SOURCE
from groupwise_recipes.visual_reasoning.vision import SeenPicture


def write_target(example: Example, targets: str) -> str:
    """Return the answer to teach; what there is nothing to say of is left out."""
    label = str(example.label)
    said = "" if targets == "answer" else write_thoughts(example, has_boxes=targets == "boxes")
    if not said:
        return QUESTION_PARSER.write(label)
    return f"<think>{said}</think><answer>{label}</answer>"


def write_answer(example: Example, label: str, targets: str) -> str:
    """Return the answer that says ``label``, with the reasoning that goes with it."""
    return write_target(replace(example, label=label), targets)


def write_thoughts(example: Example, *, has_boxes: bool) -> str:
    """Return the boxes, as the model is to write them, and the reasoning; empty without either.

    Of drawn scenes the reasoning is made; of other rows it is the first that people wrote.
    """
    boxes, frame = place_boxes(example)
    relation: Relation = example.fields.get("relation", "")
    if is_drawn(example) and len(boxes) == 2 and relation in INVERSES:
        return write_reasoning(
            boxes[0],
            relation,
            boxes[1],
            is_true=str(example.label) == TRUE,
            frame=frame if has_boxes else None,
            language="en",
        )
    places = [write_box(box, frame=frame) for box in boxes] if has_boxes else []
    return " ".join([*places, *example.fields.get("reasonings", ())[:1]])


def is_drawn(example: Example) -> bool:
    """Return whether an example is of a drawn scene."""
    return str(example.fields.get("source", "")).startswith(f"{SOURCE}_")


def place_boxes(example: Example) -> tuple[list[Box], Size]:
    """Return the reference boxes of an example in the frame that its model writes in, and that."""
    fields = example.fields
    if not fields.get("boxes"):
        return [], (1, 1)
    given, wanted = tuple(fields["picture_size"]), tuple(fields["seen_size"])
    return [convert_box(box, given=given, wanted=wanted) for box in read_boxes(example)], wanted


def read_boxes(example: Example) -> list[Box]:
    """Return the reference boxes of an example in original pixels; none if it has none."""
    return [Box(*row) for row in example.fields.get("boxes", ())]


def read_warmup(folder: Path) -> list[Example]:
    """Return the examples of the warm-up; none where there is no warm-up."""
    path = folder / "warmup.jsonl"
    return read_examples(path) if path.is_file() else []


def make_warmup_rows(
    examples: Sequence[Example], targets: str, *, descriptions: bool = False
) -> list[SftRow]:
    """Return what the warm-up teaches."""
    if targets != "answer" and not any(
        write_thoughts(one, has_boxes=targets == "boxes") for one in examples
    ):
        raise DataError(
            "no row of the warm-up has any reasoning or box to teach", fix="set sft.targets: answer"
        )
    shown = [one for one in examples if descriptions and one.fields.get("boxes")]
    return [
        *(SftRow(example, write_target(example, targets)) for example in examples),
        *map(describe_picture, shown),
    ]


def describe_picture(example: Example) -> SftRow:
    """Return the row that asks what a picture shows, from left to right."""
    boxes, frame = place_things(example)
    asked = make_example(
        [Message("user", "What does the picture show, from left to right?")],
        cluster=example.cluster,
        pictures=example.pictures,
    )
    return SftRow(asked, " ".join(write_box(box, frame=frame) for box in order_boxes(boxes)))


def see_picture(example: Example) -> SeenPicture:
    """Return what is known of a drawn picture: its things by name, and where they are.

    Things are numbered from left to right, so that where something lies is known together with what
    it is. Coordinates are told in 32nds of the frame.
    """
    boxes, (width, height) = place_things(example)
    facts = dict[str, str]()
    for number, box in enumerate(order_boxes(boxes)):
        color, kind = box.label.split()
        sides = (box.x1 / width, box.y1 / height, box.x2 / width, box.y2 / height)
        told = [color, kind, *(str(min(31, int(32 * side))) for side in sides)]
        keys = ("color", "kind", "x1", "y1", "x2", "y2")
        facts |= {f"{number} {key}": fact for key, fact in zip(keys, told, strict=True)}
    return SeenPicture(example.pictures[0], facts)


def place_things(example: Example) -> tuple[list[Box], Size]:
    """Return the boxes as ``place_boxes`` does, with full names where they are told."""
    boxes, frame = place_boxes(example)
    names = example.fields.get("things") or [box.label for box in boxes]
    return [replace(box, label=name) for box, name in zip(boxes, names, strict=True)], frame


def find_gaps(prepared: Path, targets: str | None) -> list[Finding]:
    """Return what the audit is to say of rows without boxes or reasoning."""
    warmup = read_warmup(prepared)
    splits = {
        name: read_examples(prepared / f"{name}.jsonl") for name in ("train", "validation", "test")
    }
    taught = {} if targets is None else {"warmup": warmup}
    return [*_find_boxless({**taught, **splits}), *_find_wordless(warmup, targets)]


def _find_boxless(splits: dict[str, list[Example]]) -> list[Finding]:
    counts = {
        name: sum(not one.fields.get("boxes") for one in rows) for name, rows in splits.items()
    }
    num_rows, num_without = sum(map(len, splits.values())), sum(counts.values())
    if not 0 < num_without < num_rows:
        return []
    message = (
        f"{num_without} of {num_rows} rows have no reference boxes: what measures or rewards boxes "
        "leaves them out, and nothing else does."
    )
    where = tuple(f"{name}: {count} of {len(splits[name])}" for name, count in counts.items())
    return [Finding("info", "rows_without_boxes", message, num_without, where)]


def _find_wordless(warmup: Sequence[Example], targets: str | None) -> list[Finding]:
    if targets == "answer":
        return []
    num_without = sum(not write_thoughts(one, has_boxes=False) for one in warmup)
    if not num_without:
        return []
    message = (
        f"{num_without} of {len(warmup)} rows of the warm-up have no reasoning: they are taught "
        + ("the answer with boxes alone." if targets == "boxes" else "the answer alone.")
    )
    return [Finding("info", "rows_without_reasoning", message, num_without)]
