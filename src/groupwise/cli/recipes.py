"""``groupwise recipes``: what is installed."""

import typer

from groupwise.pipeline import find_recipes, list_configs


def recipes() -> None:
    """List the recipes with their configs."""
    found = find_recipes()
    if not found:
        typer.echo("no recipes are installed; install the package groupwise again", err=True)
    for recipe in found.values():
        typer.echo(f"{recipe.name}: {recipe.summary}")
        typer.echo(f"  configs: {', '.join(list_configs(recipe)) or 'none'}")
