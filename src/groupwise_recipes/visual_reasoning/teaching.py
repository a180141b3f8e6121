"""What the warm-up teaches: where things are, what follows from it, and the answer."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from groupwise.core import DataError, Example
from groupwise.data import read_examples
from groupwise.rewards import Box
from groupwise.training import SftRow
from groupwise_drawn.relations import INVERSES, Relation
from groupwise_recipes.visual_reasoning.answers import QUESTION_PARSER
from groupwise_recipes.visual_reasoning.boxes import Size, convert_box, write_box
from groupwise_recipes.visual_reasoning.reasoning import write_reasoning
from groupwise_recipes.visual_reasoning.rows import TRUE
from groupwise_recipes.visual_reasoning.scenes import SOURCE


def write_target(example: Example, targets: str) -> str:
    """Return the answer to teach; what there is nothing to say of is left out.

    Args:
        example: of any row.
        targets: as of ``WarmupSettings``.
    """
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


def make_warmup_rows(examples: Sequence[Example], targets: str) -> list[SftRow]:
    """Return what the warm-up teaches.

    Raises:
        DataError: if no row has anything to reason with, and not the answer alone is to be taught.
    """
    if targets != "answer" and not any(
        write_thoughts(one, has_boxes=targets == "boxes") for one in examples
    ):
        raise DataError(
            "no row of the warm-up has any reasoning or box to teach", fix="set sft.targets: answer"
        )
    return [SftRow(example, write_target(example, targets)) for example in examples]
