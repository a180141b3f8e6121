"""What rows leave out: those without boxes, and those of the warm-up without a reasoning."""

from collections.abc import Sequence
from pathlib import Path

from groupwise.core import Example, Finding
from groupwise.data import read_examples
from groupwise_recipes.visual_reasoning.rows import Split
from groupwise_recipes.visual_reasoning.teaching import read_warmup, write_thoughts

_SPLITS: tuple[Split, ...] = ("train", "validation", "test")


def find_gaps(prepared: Path, targets: str | None) -> list[Finding]:
    """Return what the audit is to say of rows without boxes or reasoning.

    Args:
        prepared: folder of the stage ``prepare``.
        targets: as of ``WarmupSettings``; None: there is no warm-up.
    """
    warmup = read_warmup(prepared)
    splits = {name: read_examples(prepared / f"{name}.jsonl") for name in _SPLITS}
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
