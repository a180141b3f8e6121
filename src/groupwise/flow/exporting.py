"""A policy of a run for other tools: its weights with a model card, in a folder or on a hub.

The card is made from what the run recorded; no row of data is in it or goes up.
"""

import os
import re
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from groupwise.core import RunError, RunFolder, dump_config
from groupwise.data.examples import read_examples
from groupwise.evaluation.metrics import PairedComparison, read_metrics
from groupwise.evaluation.predictions import read_as, read_policies
from groupwise.evaluation.report.page import describe_metric, escape_cell, write_code
from groupwise.evaluation.results import Conditions, read_conditions, read_headline
from groupwise.flow.finished import BASE, FinishedRun
from groupwise.models.export import CARD, ExportedPolicy, export_policy
from groupwise.models.sources import find_hub_id, find_place

_BUDGET = ("num_steps", "num_samples", "num_tokens")
_SPLIT = "test"
_UNKNOWN = "–"


def render_card(run: FinishedRun, policy: str, exported: ExportedPolicy) -> str:
    """Return the card as Markdown with the front matter of a hub."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    config, chain = run.config, run.describe_policy(policy)
    conditions = read_conditions(run.folder) or Conditions()
    licence = find_licence(config.model.base)
    base = config.model.base
    hub_id = None if config.model.is_tiny or Path(base).exists() else find_hub_id(base)
    base = Path(base).name if Path(base).exists() else base
    # What GRPO was asked, where the run keeps it; rows may name their language.
    path = run.folder / run.task.data_stage / "train.jsonl"
    train = read_examples(path) if path.is_file() else []
    languages = sorted({str(one.fields["language"]) for one in train if one.fields.get("language")})
    front = {
        **({"license": licence} if licence else {}),
        **({"base_model": hub_id} if hub_id else {}),
        **({"language": languages} if languages else {}),
        "library_name": "transformers",
        "pipeline_tag": "image-text-to-text" if exported.has_vision else "text-generation",
        "tags": ["groupwise", *dict.fromkeys(one.step for one in chain if one.step)],
    }
    trainings: list[tuple[str, ...]] = []
    for one in chain:
        if one.step:
            budget = (f"{one.budget[k]:,.0f}" if k in one.budget else _UNKNOWN for k in _BUDGET)
            trained_from = one.trained_from or "the base"
            trainings.append((one.title, trained_from, ", ".join(one.trained_on), *budget))
    # The settings of the trainings, without places of this machine.
    settings, places = dump_config(config), ("vllm", "report_to")
    method = {
        name: settings[name] and {k: v for k, v in settings[name].items() if k not in places}
        for name in ("sft", "grpo")
    }
    numbers, differences = _list_results(run.folder, chain[-1].name)
    environment: Any = Environment(
        loader=PackageLoader("groupwise.flow"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters.update(cell=escape_cell, code=write_code, fence=_fence)
    dump = partial(yaml.safe_dump, allow_unicode=True, sort_keys=False)
    return environment.get_template("model_card.md.j2").render(
        front=dump(front),
        name=exported.name,
        recipe=run.recipe.name,
        policy=chain[-1],
        base=base,
        licence=licence,
        prompt=run.task.describe_prompt(config),
        pictures=any(one.pictures for one in train),
        max_new_tokens=config.grpo.max_new_tokens,
        parser=dump(dict(run.task.describe_parser(config))),
        split=_SPLIT,
        headline=read_headline(run.folder).title,
        numbers=numbers,
        differences=differences,
        trainings=trainings,
        method=dump(method | {"base": base}),
        data=[
            (name, *(str(known.get(k, _UNKNOWN)) for k in ("num_rows", "num_clusters", "digest")))
            for name, known in conditions.data.items()
        ],
        base_weights=conditions.base_weights,
        quantization=exported.quantization,
        commands=exported.list_commands(from_inside=True),
    )


def find_licence(base: str) -> str | None:
    """Return the licence that a base's own card names; None where no card is at hand."""
    from huggingface_hub import metadata_load, try_to_load_from_cache

    place = find_place(base)
    path: Any = Path(place) / "README.md"
    if not Path(place).is_dir():
        try:
            path = try_to_load_from_cache(str(place), "README.md")
        except ValueError:  # not a name that the hub could have
            return None
    if not isinstance(path, str | Path) or not Path(path).is_file():
        return None
    found = (metadata_load(path) or {}).get("license")
    return " and ".join(found) if isinstance(found, list) else found and str(found)


def _list_results(run: Path, policy: str) -> tuple[list[tuple[str, ...]], list[str]]:
    """Return what each policy reached, and the difference of ``policy`` to the others."""
    folder, policies, headline = run / "evaluate", read_policies(run), read_headline(run)
    path = folder / "metrics.json"
    metrics = read_metrics(path) if path.is_file() else []
    found = {(m.policy, m.measure): m for m in metrics if m.split == _SPLIT}
    names = policies.sort(name for name, measure in found if measure == headline.name)
    numbers: list[tuple[str, ...]] = []
    for name in names if policy in names else ():
        share = found[name, headline.name]
        shown = (describe_metric(share), describe_metric(found[name, "invalid_rate"]))
        numbers.append((policies.title(name), *shown, f"{share.n:,}"))
    path, differences = folder / "comparisons.json", list[str]()
    for one in read_as(path, list[PairedComparison]) if path.is_file() else ():
        if (one.measure, one.split, one.policy_b) == (headline.name, _SPLIT, policy):
            ends = f"{100 * one.low:+.1f} to {100 * one.high:+.1f}"
            points = f"{100 * one.difference:+.1f} points of {headline.title.lower()}"
            differences.append(f"against {policies.title(one.policy_a)}: {points} ({ends})")
    return numbers, differences


def _fence(text: str, language: str) -> str:
    """Return text as a block of code that it cannot end itself."""
    longest = max(map(len, re.findall("`+", text)), default=0)
    mark = "`" * max(3, longest + 1)
    return f"{mark}{language}\n{text.rstrip()}\n{mark}"


def export_run(run: FinishedRun, out: Path, *, policy: str | None = None) -> ExportedPolicy:
    """Write the adapter, the merged weights and the model card of a policy into a new folder.

    ``policy`` is one of the run, or ``STEP/checkpoint-N``; None: the main one. A RunError if there
    is no such policy, or it is the base itself; a ModelError as ``export_policy``.
    """
    chosen = run.choose_policy(policy)
    if chosen == BASE:
        raise RunError(f"the policy {BASE} is the base itself", fix="take the base where it is")
    name = f"{run.recipe.name}-{run.folder.resolve().name}".replace(":", "-")
    return export_policy(
        Path(run.find_policy(chosen)),
        out,
        name=name,
        like=run.task.find_base(run.config, run.folder),
        write_card=partial(render_card, run, chosen),
    )


def check_pushable(run: FinishedRun, policy: str | None = None) -> None:
    """Refuse, by a RunError, a run of which a stage is not done, and a checkpoint."""
    missing = [
        step for step in RunFolder(run.folder).read_manifest()["plan"] if step not in run.steps
    ]
    if missing:
        raise RunError(
            f"{run.folder} is not finished",
            got=f"no {missing[0]} yet",
            fix=f"run --resume --out {run.folder}",
        )
    if policy is not None and "/" in policy:
        raise RunError("a checkpoint is not pushed", got=policy, fix="export it with --out")


def list_uploads(folder: Path) -> Mapping[str, Path]:
    """Return the files of an export by their place on a hub: merged weights at the root."""
    merged, adapter = folder / "merged", folder / "adapter"
    found = {path.relative_to(merged).as_posix(): path for path in sorted(merged.rglob("*"))}
    found |= {path.relative_to(folder).as_posix(): path for path in sorted(adapter.rglob("*"))}
    return {CARD: folder / CARD, **{name: path for name, path in found.items() if path.is_file()}}


def upload(files: Mapping[str, Path], name: str, *, is_private: bool = False) -> str:
    """Upload files, by their place there, as one commit into a repository (``owner/name``).

    It is made if it is not there. The hub is that of ``HF_ENDPOINT``, the token that of
    ``HF_TOKEN`` or of ``hf auth login``. Returns the address; a RunError if the hub cannot be
    reached or refuses.
    """
    import httpx2
    from huggingface_hub import CommitOperationAdd, HfApi

    api = HfApi(endpoint=os.environ.get("HF_ENDPOINT"))
    adds = [CommitOperationAdd(path_in_repo=place, path_or_fileobj=p) for place, p in files.items()]
    try:
        found = api.create_repo(name, private=is_private, exist_ok=True)
        api.create_commit(found.repo_id, adds, commit_message="A policy of Groupwise")
    except (OSError, ValueError, httpx2.HTTPError) as error:
        first = str(error).strip().partition("\n")[0]
        raise RunError(
            f"the hub {api.endpoint} did not take {name} ({first})",
            fix="check HF_ENDPOINT, HF_TOKEN and the name",
        ) from error
    return str(found)
