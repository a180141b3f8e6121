"""``groupwise executor-stub``: the stub as a server of its own."""

from pathlib import Path
from typing import Annotated

import typer

from groupwise.core import load_config, read_jsonl


def executor_stub(
    problems: Annotated[Path, typer.Option(help="Problems whose answers it knows, as JSONL.")],
    port: Annotated[int, typer.Option(help="On 127.0.0.1; 0: a free one.")] = 8002,
    abilities: Annotated[Path | None, typer.Option(help="How often it is right, as YAML.")] = None,
) -> None:
    """Serve a made-up executor of workflows, which is no model.

    It knows the answers and errs by chance: for demos, tests and dry runs only.
    """
    from groupwise.data.problem_sets import Problem
    from groupwise_recipes.workflows.executor_stub import Abilities, ExecutorStub

    known = [load_config(Problem, row) for row in read_jsonl(problems)]
    chosen = load_config(Abilities, abilities) if abilities is not None else None
    with ExecutorStub(known, chosen, port=port) as stub:
        typer.echo(f"executor-stub at {stub.url}: {len(known)} problems; it is no model")
        try:
            stub.wait()
        except KeyboardInterrupt:
            typer.echo("stopped")
