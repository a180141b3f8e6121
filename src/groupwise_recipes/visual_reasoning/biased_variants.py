"""Variants of VSR with a bias, and what a text-only probe makes of them.

python -m groupwise_recipes.visual_reasoning.biased_variants --data vsr --keep 0.8 --out DIR
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from groupwise.cli.main import main
from groupwise.cli.options import PATH, option
from groupwise.core import write_json
from groupwise_recipes.visual_reasoning.probe import (
    check_probe,
    find_opposite_captions,
    find_shared_pictures,
    fit_probe,
)
from groupwise_recipes.visual_reasoning.rows import LoadedRows, VisualRow, write_rows
from groupwise_recipes.visual_reasoning.sources import load_vsr
from groupwise_recipes.visual_reasoning.variants import BiasedVariant, bias_rows, divide_by_bias

_NUM_SEEDS = 50
"""For how far the probe's figure on test spreads with the labels that ties are given."""


@click.command()
@option("--data", type=PATH, required=True, help="Folder with VSR's train, dev, test as JSONL.")
@option(
    "--keep", type=float, multiple=True, required=True, help="Share of the minority. Repeatable."
)
@option("--out", type=PATH, required=True, help="Folder for the variants.")
@option("--seed", default=0, help="Chooses rows, and labels of ties.")
def biased_variants(data: Path, keep: Sequence[float], out: Path, seed: int) -> None:
    """Write biased variants of VSR, with the accuracy of a probe that sees no picture."""
    loaded = load_vsr(data)
    train = [row for row in loaded.rows if row.split == "train"]
    variants = [bias_rows(train, keep=share, seed=seed) for share in keep]
    told = write_variants(variants, loaded, out)
    for line in _describe(told):
        click.echo(line)


def write_variants(
    variants: Sequence[BiasedVariant], loaded: LoadedRows, folder: Path
) -> dict[str, Any]:
    """Write the rows of each variant, both sides of test, and ``variants.json``; return that."""
    splits = {
        name: [row for row in loaded.rows if row.split == name]
        for name in ("train", "validation", "test")
    }
    test = splits["test"]
    for variant in variants:
        write_rows(folder / f"keep-{variant.keep:g}.jsonl", variant.rows)
    sides = divide_by_bias(test, variants[0].kept_labels)
    write_rows(folder / "test-aligned.jsonl", sides.aligned)
    write_rows(folder / "test-conflicting.jsonl", sides.conflicting)
    caption = fit_probe(splits["train"], "caption").score(test)
    findings = [
        *find_shared_pictures({name: splits[name] for name in ("train", "test", "validation")}),
        *find_opposite_captions(splits["train"], test),
        *check_probe(caption, "caption"),
    ]
    told = {
        "num_train": len(splits["train"]),
        "num_test": len(test),
        "num_aligned": len(sides.aligned),
        "num_conflicting": len(sides.conflicting),
        "num_unknown_relation": len(sides.unknown),
        "ties": list(variants[0].ties),
        "kept_labels": dict(variants[0].kept_labels),
        "variants": [_summarise(variant, splits["train"], test) for variant in variants],
        "caption_probe": caption.to_json(),
        "findings": [finding.to_json() for finding in findings],
        "drops": loaded.drops.to_json(),
    }
    write_json(folder / "variants.json", told)
    return told


def _summarise(
    variant: BiasedVariant, train: Sequence[VisualRow], test: Sequence[VisualRow]
) -> dict[str, Any]:
    probe = fit_probe(variant.rows, "relation")
    seeds = range(_NUM_SEEDS if variant.ties else 0)
    others = [bias_rows(train, keep=variant.keep, seed=seed).rows for seed in seeds]
    found = [fit_probe(rows, "relation").score(test).accuracy for rows in others]
    return {
        "keep": variant.keep,
        "num_rows": len(variant.rows),
        "in_sample": probe.score(variant.rows).to_json(),
        "test": probe.score(test).to_json(),
        "test_over_seeds": [min(found), max(found)] if found else None,
    }


def _describe(told: dict[str, Any]) -> list[str]:
    """Return the figures, a line each."""
    lines = [
        f"keep {one['keep']:g}: {one['num_rows']:,} of {told['num_train']:,} rows; "
        f"a probe that sees the relation alone: {_write(one['in_sample'])} in-sample, "
        f"{_write(one['test'])} on the unchanged test{_tell_ties(told, one)}"
        for one in told["variants"]
    ]
    lines.append(
        f"test: {told['num_aligned']:,} bias-aligned, {told['num_conflicting']:,} "
        f"bias-conflicting, {told['num_unknown_relation']:,} of relations that train has not"
    )
    caption = _write(told["caption_probe"])
    lines.append(f"a probe that sees the caption, all of train kept: {caption} on test")
    lines += [f"{one['level']}: {one['message']}" for one in told["findings"]]
    lines += [f"dropped: {num} ({reason})" for reason, num in told["drops"]["counts"].items()]
    return lines


def _tell_ties(told: dict[str, Any], variant: dict[str, Any]) -> str:
    if variant["test_over_seeds"] is None:
        return ""
    low, high = variant["test_over_seeds"]
    return (
        f"; {low:.3f} to {high:.3f} over {_NUM_SEEDS} seeds, which label {len(told['ties'])} ties"
    )


def _write(score: dict[str, Any]) -> str:
    p_value = f"= {score['p_value']:.2g}" if score["p_value"] > 0 else "< 1e-300"
    return f"{score['accuracy']:.3f} (n = {score['num_rows']:,}, p {p_value}, two-sided)"


if __name__ == "__main__":
    main(biased_variants)
