"""The stub as a server of its own.

python -m groupwise_recipes.workflows.executor_stub --problems FILE
"""

from pathlib import Path

import click

from groupwise.cli.main import main
from groupwise.cli.options import PATH, option
from groupwise.core import load_config, read_jsonl
from groupwise_recipes.workflows.executor_stub import Abilities, ExecutorStub
from groupwise_recipes.workflows.problem_sets import Problem


@click.command()
@option("--problems", type=PATH, required=True, help="Whose answers it knows, as JSONL.")
@option("--port", default=8002, help="On 127.0.0.1; 0: a free one.")
@option("--abilities", type=PATH, help="How often it is right, as YAML.")
def executor_stub(problems: Path, port: int, abilities: Path | None) -> None:
    """Serve a made-up executor of workflows, which is no model.

    It knows the answers and errs by chance: for demos, tests and dry runs only.
    """
    known = [load_config(Problem, row) for row in read_jsonl(problems)]
    chosen = load_config(Abilities, abilities) if abilities is not None else None
    with ExecutorStub(known, chosen, port=port) as stub:
        click.echo(f"executor-stub at {stub.url}: {len(known)} problems; it is no model")
        try:
            stub.wait()
        except KeyboardInterrupt:
            click.echo("stopped")


if __name__ == "__main__":
    main(executor_stub)
