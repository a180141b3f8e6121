"""Draws what ``grpo_step.py --curves FILE`` measured: step time as groups and prompts grow.

python benchmarks/grpo_curves.py FILE docs/images/grpo_growth.png
"""

import json
import sys
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

_LABELS = {
    "group_size": "completions per prompt (a 448 x 448 picture)",
    "prompt_tokens": "tokens of the prompt (text, G = 8, 16 new tokens)",
    "pictures": "pictures of the prompt (448 x 448 each, G = 8)",
}


def draw_curves(curves: dict[str, dict[str, dict[str, float]]]) -> Figure:
    """Return one panel for each kind of growth, both axes logarithmic."""
    figure = Figure(figsize=(13, 3.6), layout="constrained")
    for axes, (kind, label) in zip(figure.subplots(1, len(_LABELS)), _LABELS.items(), strict=True):
        _draw_panel(axes, curves[kind], label)
    return figure


def _draw_panel(axes: Any, points: dict[str, dict[str, float]], label: str) -> None:
    sizes = [int(size) for size in points]
    for name, key, style in (("TRL", "parent_step_s", "o-"), ("Groupwise", "step_s", "s-")):
        axes.plot(sizes, [point[key] for point in points.values()], style, label=name)
    axes.plot(sizes, [point["floor_s"] for point in points.values()], "k:", label="floor")
    axes.set(xscale="log", yscale="log", xlabel=label, ylabel="seconds a step")
    axes.set_xticks(sizes, [str(size) for size in sizes])
    axes.minorticks_off()
    axes.grid(alpha=0.3)
    axes.legend()


if __name__ == "__main__":
    source, target = map(Path, sys.argv[1:3])
    draw_curves(json.loads(source.read_text())).savefig(target, dpi=110)
