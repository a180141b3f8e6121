"""What a dry run says of the problems: how many, from where, how long."""

from importlib.util import find_spec

from groupwise.run.task import Estimate
from groupwise_recipes.workflows.bill import describe_bill
from groupwise_recipes.workflows.config import WorkflowsConfig
from groupwise_recipes.workflows.forms import list_sound_forms
from groupwise_recipes.workflows.problems import choose_examples, describe_sources
from groupwise_recipes.workflows.prompt_search import INSTALL

_LONGEST = max(list_sound_forms(), key=len)


def estimate_run(config: WorkflowsConfig) -> Estimate:
    """Go the way of the stage ``prepare`` without writing: what stops it is raised."""
    examples, drops = choose_examples(config)
    sft, executor = config.sft, config.executor.model
    server = None if executor is None else executor.server
    where = "a stub, which is no model" if executor is None else executor.model
    facts = [
        ("executor", f"{server.model} at {server.url}" if server is not None else str(where)),
        ("reward", config.reward.mode),
        ("problems left out", f"{drops.total:,}"),
        *describe_bill(config, examples),
    ]
    return Estimate(
        num_prompts=len(examples["train"]),
        num_sft_rows=0 if sft is None else len(examples.get("warmup", ())),
        rows=[(one, _LONGEST) for one in examples["train"]],
        sources=describe_sources(examples),
        facts=facts,
        later=_find_missing(config),
    )


def _find_missing(config: WorkflowsConfig) -> dict[str, list[str]]:
    """Return that the library is missing, if the prompt is to be optimised without it."""
    if config.gepa is None or find_spec("gepa") is not None:
        return {}
    return {"optimise_prompt": [f"gepa is not installed: {INSTALL}"]}
