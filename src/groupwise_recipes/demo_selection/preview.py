"""What a dry run says: queries, prompts that are asked, and what would stop the run."""

from pathlib import Path

from groupwise.core import GroupwiseError
from groupwise.models.base_model import check_base
from groupwise.run.recipe import Preview, PreviewTable
from groupwise_recipes.demo_selection.candidate_audit import audit_candidates
from groupwise_recipes.demo_selection.config import DemoSelectionConfig
from groupwise_recipes.demo_selection.data_stages import load_files, split_vqa
from groupwise_recipes.demo_selection.evaluate_stage import list_run_cells
from groupwise_recipes.demo_selection.given_lists import read_lists
from groupwise_recipes.demo_selection.recording import NUM_OTHER_LISTS


def preview_run(config: DemoSelectionConfig) -> Preview:
    """Return what there is to say of a config without running it."""
    facts = [("answerer", config.server.model if config.server else config.model.base)]
    problems = [] if config.server is not None else check_base(config.model)
    try:
        sizes = _count_items(config)
    except GroupwiseError as error:
        return Preview(facts, [str(error), *problems])
    if config.pools.size >= sizes["train"]:
        problems.append(
            f"pools.size: {config.pools.size} of {sizes['train']} train items; lower it"
        )
    num_cells = len(list_run_cells(config))
    num_evaluated = num_cells * max(config.evaluation.sizes)
    if config.data.recorded is None:
        lists = _describe_recording(config, sizes["anchors"] + sizes["validation"])
    else:
        lists, found = _describe_given(config, config.data.recorded)
        problems += found
    facts += [
        ("pools", f"{config.pools.size} of {sizes['train']:,} train items, {config.pools.sampler}"),
        *lists,
        ("prompts to evaluate", f"at most {num_evaluated:,} in {num_cells} cells"),
        ("grpo", f"{config.grpo.epochs} epochs, beta {config.grpo.beta:g}"),
    ]
    rows = [(split, f"{size:,}") for split, size in sizes.items()]
    return Preview(facts, problems, tables=[PreviewTable("Items", ("split", "items"), rows)])


def _describe_recording(config: DemoSelectionConfig, num_queries: int) -> list[tuple[str, str]]:
    num_lists, num_recordings = _count_lists(config), 2 if config.record_again else 1
    num_recorded = num_recordings * num_lists * num_queries
    return [
        ("lists per query", f"at most {num_lists} of {config.recording.num_shots} demonstrations"),
        ("prompts to record", f"at most {num_recorded:,} in {num_recordings} recordings"),
    ]


def _describe_given(
    config: DemoSelectionConfig, path: Path
) -> tuple[list[tuple[str, str]], list[str]]:
    """Return what a published file has, and why its lists cannot be trained on."""
    try:
        found = read_lists(path)
        audit = audit_candidates(
            found.recording, mode=config.reward, limits=config.limits, name=path.name
        )
        told = f"{found.num_lists:,} of {len(found.recording.queries):,} queries in {path.name}"
        audit.refuse_errors()
    except GroupwiseError as error:
        return [], [f"data.recorded: {error}"]
    return [("recorded lists", told)], []


def _count_items(config: DemoSelectionConfig) -> dict[str, int]:
    drawn, vqa = config.data.drawn, config.data.vqa
    if drawn is not None:
        return {
            "train": drawn.num_train,
            "anchors": drawn.num_anchors,
            "validation": drawn.num_validation,
            "test": drawn.num_test,
        }
    assert vqa is not None  # one of the two is given
    splits = split_vqa(load_files(vqa.train), load_files(vqa.test), vqa, seed=config.seed)
    return {name: len(rows) for name, rows in splits.items()}


def _count_lists(config: DemoSelectionConfig) -> int:
    return config.recording.num_beams + NUM_OTHER_LISTS
