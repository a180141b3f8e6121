"""What GRPO of a run trains on, for verl 0.9.1 or ms-swift 4.6.0: rows, rewards and a script."""

import os
import shlex
from collections.abc import Mapping, Sequence
from contextlib import chdir, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

from groupwise import core
from groupwise.core import ConfigError, Example, Message, Picture, RunError, replace_file
from groupwise.data.examples import DropLog, read_examples, read_splits, write_examples
from groupwise.flow.finished import FinishedRun
from groupwise.flow.settings import FlowConfig
from groupwise.inference.pictures import read_picture_bytes
from groupwise.models.encoding import break_tokens_for_others
from groupwise.models.sources import find_place
from groupwise.pipeline import find_recipe
from groupwise.rewards import RewardSet
from groupwise.rewards.adapters import EXAMPLE_ID, VerlScore

TrainerName = Literal["verl", "swift"]

_TAGS = {  # what each would read as something else in the words of a prompt
    "verl": "image video audio",
    "swift": "image video audio bbox ref-object cot-process start-image",
}
_PLUGINS = {
    "verl": """\
from groupwise.rewards.adapters import VerlScore

# What verl gets, in [0, 1], where an answer has no score, as when the judge gave no verdict; verl
# needs a number, so with None such an answer stops the training.
UNSCORED = None
rewards, examples = open_rewards(Path(__file__).parent)
compute_score = VerlScore(rewards, unscored=UNSCORED, examples=examples)
""",
    "swift": """\
from groupwise.rewards.adapters import make_swift_orm
from swift.rewards import orms

rewards, examples = open_rewards(Path(__file__).parent)
orms["groupwise"] = make_swift_orm(rewards, examples=examples)
""",
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
    if trainer == "verl":
        VerlScore(rewards)  # refuses what verl cannot score
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
        head = "from pathlib import Path\n\nfrom groupwise.flow.trainers import open_rewards\n"
        core.write_text(folder / "plugin.py", head + _PLUGINS[trainer])
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
    from jinja2 import Environment, PackageLoader, StrictUndefined

    grpo, model, lora = config.grpo, config.model, config.grpo.trainable.lora
    place, start = find_place(model.base), '"${MODEL:?a model folder or a hub id}"'
    if config.sft is not None:
        start = "${MODEL:-model/merged}"
    elif not model.is_tiny and not Path(place).exists():
        start = f"${{MODEL:-{shlex.quote(str(place))}}}"
    environment: Any = Environment(
        loader=PackageLoader("groupwise.flow"),
        undefined=StrictUndefined,
        trim_blocks=True,
        keep_trailing_newline=True,
    )
    return environment.get_template(f"{trainer}.sh.j2").render(
        trainer=trainer,
        start=start,
        config=config,
        grpo=grpo,
        rank=lora.rank * (grpo.trainable.method == "lora"),
        asked=config.data.budget.max_prompt_tokens,
        generated=grpo.steps_per_generation or grpo.gradient_accumulation,
        save=grpo.save_every_steps or 50,
        has_validation=has_validation,
    )
