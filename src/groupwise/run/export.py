"""What leaves a run: a policy with its card, and what GRPO trains on for other trainers."""

import os
import re
import shlex
from collections.abc import Mapping, Sequence
from contextlib import chdir, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import yaml

from groupwise import core
from groupwise.core import (
    ConfigError,
    Example,
    Message,
    Picture,
    RunError,
    RunFolder,
    dump_config,
    replace_file,
)
from groupwise.data.examples import DropLog, read_examples, read_splits, write_examples
from groupwise.evaluation.metrics import PairedComparison, read_metrics
from groupwise.evaluation.predictions import read_as, read_policies
from groupwise.evaluation.report.page import describe_metric, escape_cell, write_code
from groupwise.evaluation.results import Conditions, read_conditions, read_headline
from groupwise.inference.pictures import read_picture_bytes
from groupwise.models.export import CARD, ExportedPolicy, export_policy
from groupwise.models.prompts import break_tokens_for_others
from groupwise.models.sources import find_hub_id, find_place
from groupwise.rewards import RewardSet
from groupwise.rewards.adapters import EXAMPLE_ID
from groupwise.run.predict import BASE, FinishedRun
from groupwise.run.recipe import find_recipe
from groupwise.run.settings import FlowConfig

_SPLIT = "test"


def _render(template: str, **values: Any) -> str:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment: Any = Environment(
        loader=PackageLoader("groupwise.run"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=template == "model_card.md.j2",
        keep_trailing_newline=True,
    )

    def fence(text: str, language: str) -> str:
        """Return text as a block of code that it cannot end itself."""
        mark = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
        return f"{mark}{language}\n{text.rstrip()}\n{mark}"

    environment.filters.update(cell=escape_cell, code=write_code, fence=fence)
    return environment.get_template(template).render(**values)


def render_card(run: FinishedRun, policy: str, exported: ExportedPolicy) -> str:
    """Return the card as Markdown with the front matter of a hub."""
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
    # The settings of the trainings, without places of this machine.
    settings, places = dump_config(config), ("vllm", "report_to")
    method = {
        name: settings[name] and {k: v for k, v in settings[name].items() if k not in places}
        for name in ("sft", "grpo")
    }
    # What each policy reached, and the difference of this one to the others.
    name, policies, headline = chain[-1].name, read_policies(run.folder), read_headline(run.folder)
    path = run.folder / "evaluate" / "metrics.json"
    metrics = read_metrics(path) if path.is_file() else []
    found = {(m.policy, m.measure): m for m in metrics if m.split == _SPLIT}
    names = policies.sort(one for one, measure in found if measure == headline.name)
    numbers: list[tuple[str, ...]] = []
    for one in names if name in names else ():
        share, invalid = found[one, headline.name], found[one, "invalid_rate"]
        shown = (describe_metric(share), describe_metric(invalid), f"{share.n:,}")
        numbers.append((policies.title(one), *shown))
    path, differences = path.with_name("comparisons.json"), list[str]()
    for one in read_as(path, list[PairedComparison]) if path.is_file() else ():
        if (one.measure, one.split, one.policy_b) == (headline.name, _SPLIT, name):
            ends = f"{100 * one.low:+.1f} to {100 * one.high:+.1f}"
            points = f"{100 * one.difference:+.1f} points of {headline.title.lower()}"
            differences.append(f"against {policies.title(one.policy_a)}: {points} ({ends})")
    dump = partial(yaml.safe_dump, allow_unicode=True, sort_keys=False)
    return _render(
        "model_card.md.j2",
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
        headline=headline.title,
        numbers=numbers,
        differences=differences,
        trainings=[one for one in chain if one.step],
        method=dump(method | {"base": base}),
        data=conditions.data,
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


TrainerName = Literal["verl", "swift"]

_TAGS = {  # what each would read as something else in the words of a prompt
    "verl": "image video audio",
    "swift": "image video audio bbox ref-object cot-process start-image",
}


@dataclass(frozen=True, slots=True)
class HandedOver:
    """What was written for another trainer: rows by split, rows left out, and the files."""

    num_rows: Mapping[str, int]
    drops: DropLog
    files: tuple[Path, ...]


def export_for_trainer(run: FinishedRun, out: Path, trainer: TrainerName) -> HandedOver:
    """Write rows, pictures, a plug-in file with the rewards, and a script into a new folder.

    Nothing in it names a path outside but the run's own config. At least the data of the run are
    ready, else a RunError. A ConfigError if ``out`` has files, or the trainer cannot train what
    the run does; a DataError if a picture cannot be read, or is not what the run wrote.
    """
    config, stage = run.config, run.task.data_stage
    if not isinstance(config, FlowConfig):
        problem = f"the recipe {run.recipe.name} trains no model with GRPO that {trainer} could"
        raise ConfigError(problem)
    if config.grpo.trainable.method == "prompt":
        raise ConfigError(f"{trainer} trains no virtual tokens", got="grpo.trainable.method")
    if config.model.quantization is not None:
        raise ConfigError(f"{trainer} is not told of weights in 4 bits", got="model.quantization")
    if why := run.task.explain_bound_rewards(config):
        raise ConfigError(f"the rewards of this run cannot be built again elsewhere: {why}")
    rewards: RewardSet = run.task.rewards(config)  # without their judge
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ConfigError(f"--out {out} is in use", expected="a new or empty folder")
    if stage not in run.steps:
        fix = f"finish it (run --resume --out {run.folder})"
        raise RunError(f"{run.folder} has no data yet", got=f"no {stage}", fix=fix)
    drops, kept = DropLog(), {"train": list[Example](), "validation": list[Example]()}
    for name, examples in read_splits(run.folder / stage, *kept).items():
        for one in examples:
            words = "\n".join(p for turn in one.prompt for p in turn.parts if isinstance(p, str))
            tags = [tag for name in _TAGS[trainer].split() if (tag := f"<{name}>") in words]
            if tags and (one.pictures or trainer == "swift"):
                drops.add(f"{tags[0]} in the words of a prompt", one.id)
            elif unusable := rewards.explain_unusable(one):
                drops.add("no reward can score its answers", f"{one.id} ({unusable})")
            else:
                kept[name].append(one)
    if not kept["train"]:
        why = ", ".join(f"{count} x {reason}" for reason, count in drops.counts.items())
        raise ConfigError(f"no row of {run.folder} can be one of {trainer}", got=why or "no rows")
    out.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=out.parent, prefix=f".{out.name}.") as made:
        folder = Path(made) / out.name
        splits = {name: [copy_pictures(one, folder) for one in kept[name]] for name in kept}
        for name in filter(splits.get, splits):
            _write_rows(folder / name, splits[name], trainer, run)
        record = {"recipe": run.recipe.name, "config": core.dump_config(config)}
        record["relative_to"] = os.path.relpath(Path.cwd(), out)
        core.write_json(folder / "run.json", record)
        write_examples(folder / "examples.jsonl", [*splits["train"], *splits["validation"]])
        core.write_text(folder / "plugin.py", _render(f"{trainer}_plugin.j2"))
        script = _write_script(config, trainer, has_validation=bool(splits["validation"]))
        core.write_text(folder / "launch.sh", script)
        names = sorted(path.name for path in folder.iterdir() if path.is_file())
        folder.replace(out)
    counts = {name: len(rows) for name, rows in kept.items()}
    return HandedOver(counts, drops, tuple(out / name for name in names))


def open_rewards(folder: Path) -> tuple[RewardSet, Mapping[str, Example]]:
    """Return a run's rewards and examples by id, from a folder that ``export_for_trainer`` wrote.

    Relative paths in the config are those of the folder in which the export was made, as long as
    it is where it was. The judge keeps its replies below ``folder`` unless its config names a file.
    """
    known = core.read_json(folder / "run.json", dict)
    inside = folder.resolve()
    home, judged = inside / known["relative_to"], inside / "judge"
    judged.mkdir(exist_ok=True)
    with chdir(home) if home.is_dir() else nullcontext():
        recipe = find_recipe(known["recipe"])
        assert recipe.task is not None
        task = recipe.task()
        config = core.load_config(recipe.load_config_type(), known["config"])
        rewards = task.rewards(config, task.judge(config, judged))
    return rewards, {one.id: one for one in read_examples(inside / "examples.jsonl")}


def _write_rows(
    path: Path, examples: Sequence[Example], trainer: TrainerName, run: FinishedRun
) -> None:
    shown = [[show_picture(one, path.parent) for one in example.pictures] for example in examples]
    recipe, most = run.recipe.name, run.config.model.max_pixels
    rows: list[dict[str, Any]] = []
    for number, (one, names) in enumerate(zip(examples, shown, strict=True)):
        if trainer == "swift":
            row = {"messages": write_turns(one), "solution": one.label, EXAMPLE_ID: one.id}
            rows.append({**row, "images": names} if names else row)
            continue
        row = {"data_source": f"groupwise/{recipe}", "prompt": write_turns(one), "ability": recipe}
        row["reward_model"] = {"style": "rule", "ground_truth": one.label}
        row["extra_info"] = {"split": path.name, "index": number, EXAMPLE_ID: one.id}
        if any(shown):  # the columns of Parquet are those of the first row
            row["images"] = [{"image": name, "max_pixels": most} for name in names]
        rows.append(row)
    if trainer == "swift":
        core.write_jsonl(path.with_suffix(".jsonl"), rows)
        return
    import pyarrow as pa
    import pyarrow.parquet as pq

    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist(rows), sink)
    replace_file(path.with_suffix(".parquet"), [sink.getvalue()])


def write_turns(example: Example) -> list[dict[str, str]]:
    """Return the turns of a prompt, each picture as its tag; no words spell control tokens."""

    def write(part: str | Picture) -> str:
        return break_tokens_for_others(part) if isinstance(part, str) else "<image>"

    return [{"role": one.role, "content": "".join(map(write, one.parts))} for one in example.prompt]


def copy_pictures(example: Example, folder: Path) -> Example:
    """Return an example whose pictures are copies below ``folder``, byte by byte, for the judge."""

    def copy(part: str | Picture) -> str | Picture:
        if isinstance(part, str):
            return part
        path = folder / "pictures" / f"{part.digest}{part.path.suffix.lower()}"
        if not path.exists():
            replace_file(path, [read_picture_bytes(part)])
        return Picture(path, part.digest)

    turns = tuple(Message(turn.role, map(copy, turn.parts)) for turn in example.prompt)
    return replace(example, prompt=turns)


def show_picture(picture: Picture, folder: Path) -> str:
    """Return the path of the copy, or of a PNG where others would read it turned or converted."""
    with core.open_lazily(picture.path) as opened:
        is_plain = core.shows_as_it_is(opened)
    path = picture.path if is_plain else picture.path.with_name(f"{picture.digest}.upright.png")
    if not path.exists():
        core.open_picture(picture).save(path, format="PNG", compress_level=1)
    return path.relative_to(folder).as_posix()


def _write_script(config: FlowConfig, trainer: TrainerName, *, has_validation: bool) -> str:
    grpo, model = config.grpo, config.model
    place, start = find_place(model.base), '"${MODEL:?a model folder or a hub id}"'
    if config.sft is not None:
        start = "${MODEL:-model/merged}"
    elif not model.is_tiny and not Path(place).exists():
        start = f"${{MODEL:-{shlex.quote(str(place))}}}"
    return _render(
        f"{trainer}.sh.j2",
        trainer=trainer,
        start=start,
        config=config,
        grpo=grpo,
        rank=grpo.trainable.lora.rank * (grpo.trainable.method == "lora"),
        asked=config.data.budget.max_prompt_tokens,
        generated=grpo.steps_per_generation or grpo.gradient_accumulation,
        save=grpo.save_every_steps or 50,
        has_validation=has_validation,
    )
