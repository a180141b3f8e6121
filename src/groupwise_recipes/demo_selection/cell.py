"""One cell of a finished run: a way of choosing at so many shots, on so many test queries.

    python -m groupwise_recipes.demo_selection.cell RUN --system grpo --epoch 2 --shots 3

The look at the test split is counted. The cells of the run stay as they are; answers are taken from
those that it keeps, and new ones are kept there. ``groupwise run`` fills all cells of a config.
"""

from pathlib import Path
from tempfile import TemporaryDirectory

import click

from groupwise.cli.main import main
from groupwise.cli.options import COUNT, PATH, option
from groupwise.core import RunFolder, load_config
from groupwise.evaluation.results import record_look
from groupwise_recipes.demo_selection.cells import Cell, CellRow, draw_subsets
from groupwise_recipes.demo_selection.config import DemoSelectionConfig
from groupwise_recipes.demo_selection.evaluate_stage import make_evaluator
from groupwise_recipes.demo_selection.list_stages import read_material
from groupwise_recipes.demo_selection.task import TASK


def measure_cell(
    run: Path, cell: Cell, *, num_samples: int | None = None, device: str | None = None
) -> tuple[CellRow, ...]:
    """Return the rows of one cell, asked of the answerer of a run."""
    config = load_config(DemoSelectionConfig, RunFolder(run).read_manifest()["config"])
    material = read_material(config, run)
    ids = [one.id for one in material.items["test"]]
    sizes = [num_samples or max(config.evaluation.sizes)]
    wanted = draw_subsets(ids, sizes, seed=config.seed).largest
    record_look(run, [one for one in material.items["test"] if one.id in set(wanted)])
    with TemporaryDirectory() as folder:
        evaluator = make_evaluator(
            TASK, config, run, folder=Path(folder), material=material, device=device
        )
        return evaluator.evaluate(cell, wanted)


@click.command()
@click.argument("run", metavar="RUN", type=PATH)
@option("--system", default="grpo", help="rce, grpo or a baseline.")
@option("--epoch", type=COUNT, help="Of rce or grpo.")
@option("--shots", type=click.IntRange(min=0), default=1)
@option("--samples", type=COUNT, help="Test queries.")
@option("--device", help="Such as cpu or cuda:1.")
def cell(
    run: Path, system: str, epoch: int | None, shots: int, samples: int | None, device: str | None
) -> None:
    """Evaluate one cell of a run with trained selectors, and print its accuracy."""
    rows = measure_cell(run, Cell(system, shots, epoch), num_samples=samples, device=device)
    found = [row.accuracy for row in rows if row.accuracy is not None]
    mean = f"{sum(found) / len(found):.1%}" if found else "?"
    click.echo(f"VQA accuracy {mean} (n = {len(found)}; {len(rows) - len(found)} failed)")


if __name__ == "__main__":
    main(cell)
