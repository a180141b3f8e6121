"""The summarize step: Stage A over all groups with the base, the adapter off.

Finished summaries are kept in the run's ``stage_a`` folder, beside the steps, so that a group that
failed is tried again in the next run without asking about the others. Those of other settings and
of photos that have changed stay there too: what is changed and changed back costs nothing.
"""

from pathlib import Path

from groupwise import __version__
from groupwise.core import digest_file, digest_json, dump_config, read_json, write_json
from groupwise.flow import open_policy
from groupwise.inference import LocalBackend, LocalEngine, RayBackend, ServerBackend, StreamBackend
from groupwise.pipeline import StepContext
from groupwise_recipes.group_qc.config import GroupQcConfig
from groupwise_recipes.group_qc.groups import find_root, read_groups
from groupwise_recipes.group_qc.prompts import open_questions
from groupwise_recipes.group_qc.stage_a import StageAJob, run_stage_a, write_results
from groupwise_recipes.group_qc.teach import TEACH_STEP, find_base

KEPT = "stage_a"
_ATTEMPTS = "attempts.json"


def count_attempts(run: Path) -> int:
    """Return how often Stage A ended with failed groups; 0 if it last ended without any."""
    path = run / KEPT / _ATTEMPTS
    return int(read_json(path, dict)["failed"]) if path.is_file() else 0


def run_summarize(_: object, context: StepContext) -> None:
    """Describe every photo that is not described yet."""
    config: GroupQcConfig = context.config
    prepared = context.output_of("prepare")
    groups = read_groups(config, prepared)
    kept = _find_folder(config, context)
    job = StageAJob(
        groups=[group for name, members in groups.items() if name != "teach" for group in members],
        root=find_root(config.data, prepared),
        out=kept,
        questions=open_questions(config),
        settings=config.summaries,
    )
    backend = open_backend(config, context.run)
    counts = run_stage_a(job, backend, say=context.say)
    num_failed = sum(count.num_failed for count in counts)
    attempts = count_attempts(context.run) + 1 if num_failed else 0
    write_json(context.run / KEPT / _ATTEMPTS, {"failed": attempts})
    write_results(job, context.folder)


def open_backend(config: GroupQcConfig, run: Path) -> StreamBackend:
    """Return what describes photos: the base behind a server, on Ray's workers, or here."""
    settings = config.summaries
    if settings.server is not None:
        return ServerBackend(settings.server)
    base = find_base(config, run)
    if settings.ray is not None:
        model = config.model
        return RayBackend(settings.ray, base, dtype=model.dtype, max_pixels=model.max_pixels)
    policy = open_policy(config, base)
    return LocalBackend(LocalEngine(policy, batch_size=settings.stream.batch_size))


def _find_folder(config: GroupQcConfig, context: StepContext) -> Path:
    """Return the folder of what this base says with these settings, of whatever photos."""
    inputs = {name: digest for name, digest in context.inputs.items() if name != "data.root"}
    depends = {
        "inputs": inputs,
        "words": [dump_config(config.words), config.prompts.photo],
        "policy": _describe_policy(config, context),
        "settings": config.summaries.describe(),
        "version": __version__,
    }
    return context.run / KEPT / digest_json(depends)[:12]


def _describe_policy(config: GroupQcConfig, context: StepContext) -> list[object] | None:
    """Return what a policy in this process or on workers depends on; a server has its own."""
    if config.summaries.server is not None:
        return None
    taught = context.output_of(TEACH_STEP) / "policy" if config.teach else None
    weights = taught and digest_file(taught)
    return [weights, config.model.dtype, config.model.max_pixels]
