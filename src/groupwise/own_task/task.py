"""What is the recipe's own: rows of any table, asked, read and rewarded as a config says."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, ClassVar

from groupwise.core import Completion, Example, Finding, Message, drop_folders
from groupwise.data.examples import DropLog, read_examples
from groupwise.data.rows import ask_about_row
from groupwise.data.tables import digest_table
from groupwise.own_task.config import FLUENT, TaskConfig, show_name
from groupwise.own_task.rows import (
    NOTHING_TAUGHT,
    check_targets,
    list_targets,
    load_rows,
    prepare_rows,
    read_findings,
    read_labelled_rows,
    read_targets,
    read_warmup,
)
from groupwise.own_task.scoring import STAGE as FLUENCY
from groupwise.own_task.scoring import (
    Judges,
    digest_prompts,
    fix_threshold,
    list_judged,
    list_measures,
    make_case,
    make_rewards,
    open_fluency,
    open_judges,
    pays_measurably,
    score_answers,
)
from groupwise.rewards import Parser, RewardCase, RewardSet, digest_functions, split_function
from groupwise.run.plans import digest_models
from groupwise.run.stages import ASKED, LOOKS, Stage
from groupwise.run.steps import StepContext
from groupwise.run.task import Estimate, Part, PartName, Splits, Task
from groupwise.serving import Request

if TYPE_CHECKING:
    from groupwise.evaluation.metrics import Metric
    from groupwise.evaluation.predictions import Measure, Prediction, RunPolicy
    from groupwise.evaluation.report.page import Section
    from groupwise.models.policy import Policy
    from groupwise.training.settings import RowsOfEpoch


_OWN = "groupwise.own_task"
_TABLES = " ".join(f"groupwise.data.{name}" for name in ("columns", "files", "rows", "tables"))
_REWARDS = f"groupwise.rewards groupwise.judges {_OWN}.scoring"


class OwnTask(Task[TaskConfig]):
    """A user's own rows and rewards."""

    config_type = TaskConfig
    reads_prompting: ClassVar = True
    parts: ClassVar = {
        "data": Part("data answer", f"{_TABLES} {_OWN}.rows"),
        "parser": Part("answer", "groupwise.rewards"),
        "measures": Part("answer measures data.columns.answer", f"{_OWN}.scoring"),
        "rewards": Part("answer rewards grpo.max_new_tokens", _REWARDS),
    }

    def inputs(self, config: TaskConfig) -> Mapping[str, str]:
        """Return digests of rows with their pictures, reward functions, judges and their models."""
        models = {
            f"rewards.{name}.judge.{key}": getattr(part.judge, key)
            for name, part in list_judged(config).items()
            for key in ("model", "tokenizer")
        }
        rows = digest_table(config.data)
        return {
            **{f"data.{name}": digest for name, digest in rows.items()},
            **self.reward_inputs(config),
            **_digest_files("measures", config.measures),
            **digest_models(models),
        }

    def reward_inputs(self, config: TaskConfig) -> Mapping[str, str]:
        """Return digests of the reward functions and of the prompts of judges by name."""
        return {**_digest_files("rewards", config.rewards), **digest_prompts(config)}

    def stages(self, config: TaskConfig) -> list[Stage]:
        """Return the usual stages and rivals; those that look at answers read what scores them.

        Without references there is no control on labels.
        """
        stages = super().stages(config)
        if not config.has_reference:
            uses = {one.name: one.uses.replace(" sft_control", "") for one in stages}
            stages = [
                replace(one, uses=uses[one.name]) for one in stages if one.name != "sft_control"
            ]
        more: dict[str, tuple[PartName, ...]] = {"baselines": (), "evaluate": ()}
        reads = "rivals"
        if config.rivals is not None:
            from groupwise.run.rivals import insert_rivals

            stages = insert_rivals(config.rivals, stages, LOOKS)
            more["baselines"] = ("rewards",)
            reads = "rivals grpo.temperature grpo.top_p"
        paid = "" if config.has_reference else " rewards"
        read = f" {FLUENCY}" if config.asks_for_fluency else ""
        found = [
            replace(
                one,
                parts=(*one.parts, "measures", *more.get(one.name, ())),
                reads=f"{one.reads}{paid} {reads if one.name in more else ''}",
                uses=f"{one.uses}{read}",
            )
            if "parser" in one.parts and one.name != "prepare"
            else one
            for one in stages
        ]
        if read:
            place = [one.name for one in found].index("baselines")
            found.insert(
                place,
                Stage(
                    name=FLUENCY,
                    work=fix_threshold,
                    summary="how likely the base finds its own answers",
                    reads=ASKED,
                    uses=self.data_stage,
                    code="groupwise.rewards.shaping groupwise.own_task.scoring",
                ),
            )
        return found

    def policies(self, context: StepContext) -> "Sequence[RunPolicy]":
        """Return the usual policies and the rivals."""
        from groupwise.run.rivals import list_rivals

        usual, settings = super().policies(context), context.config.rivals
        return usual if settings is None else list_rivals(settings, usual, context)

    def ask_rivals(
        self, config: TaskConfig, context: StepContext, policy: "Policy", splits: Splits
    ) -> "list[Prediction]":
        """Return what demonstrations and the best of several samples reach."""
        from groupwise.run.rivals import ask_best_of, ask_with_demonstrations

        settings, (train, test) = config.rivals, (splits["train"], splits["test"])
        found: list[Prediction] = []
        if settings is not None and (num := settings.demonstrations):
            found += ask_with_demonstrations(self, policy, train, test, context, num=num)
        if settings is not None and (num := settings.best_of):
            found += ask_best_of(self, policy, test, context, num=num)
        return found

    def describe(
        self,
        config: TaskConfig,
        context: StepContext,
        predictions: "Sequence[Prediction]",
        metrics: "Sequence[Metric]",
        test: Sequence[Example],
    ) -> "Sequence[Section]":
        """Return which rivals were not run."""
        if config.rivals is None:
            return ()
        from groupwise.run.rivals import tell_rivals

        return tell_rivals(config.rivals, self.policies(context))

    def prepare(self, config: TaskConfig, folder: Path) -> None:
        """Split the rows."""
        prepare_rows(config, folder)

    def find_in_data(self, config: TaskConfig, prepared: Path) -> Sequence[Finding]:
        """Return where the rows of each split come from, and what to know of them."""
        return read_findings(prepared)

    def parser(self, config: TaskConfig) -> Parser:
        """Return the parser of the answer's kind."""
        return config.answer

    def warmup(self, config: TaskConfig, folder: Path) -> "RowsOfEpoch":
        """Return the rows with a target."""
        return read_warmup(folder)

    def judge(self, config: TaskConfig, folder: Path) -> Judges:
        """Return the judges among the rewards, opened, and the base that reads answers."""
        judges = open_judges(config, folder)
        if "fluency" in config.rewards:
            judges.fluency = open_fluency(self, config, folder.parent)
        return judges

    def explain_bound_rewards(self, config: TaskConfig) -> str | None:
        """Return that fluency needs the threshold of the run."""
        if "fluency" in config.rewards:
            return "fluency is read by the base, with the threshold of this run"
        return None

    def rewards(self, config: TaskConfig, judge: Judges | None = None) -> RewardSet:
        """Return the rewards."""
        return make_rewards(config, judge)

    def make_case(self, config: TaskConfig, folder: Path) -> RewardCase:
        """Return the rewards and the training prompts."""
        return make_case(config, read_examples(folder / "train.jsonl"), read_targets(folder))

    def weigh(self, config: TaskConfig) -> Mapping[str, float]:
        """Return the weights by the names that reports show."""
        return {show_name(name): part.weight for name, part in config.rewards.items()}

    def list_measures(self, config: TaskConfig) -> "Sequence[Measure]":
        """Return the user's measures and, where rows have no reference, what the rewards pay."""
        return list_measures(config)

    def list_compared(self, config: TaskConfig) -> Sequence[str]:
        """Return all of them."""
        return [one.name for one in list_measures(config)]

    def score_answers(
        self,
        config: TaskConfig,
        run: Path,
        examples: Sequence[Example],
        answers: Sequence[Completion],
    ) -> Sequence[Mapping[str, float]]:
        """Return the values of the measures."""
        # With a reference rewards are no measures, and stages that measure do not read them.
        is_measured = FLUENT in config.measures or pays_measurably(config)
        is_read = is_measured and config.asks_for_fluency
        fluency = open_fluency(self, config, run) if is_read else None
        return score_answers(config, examples, answers, fluency=fluency)

    def predict_baselines(
        self,
        config: TaskConfig,
        context: StepContext,
        train: Sequence[Example],
        test: Sequence[Example],
    ) -> "list[Prediction]":
        """Return the usual baselines, which know answers by a reference alone."""
        if not config.has_reference:
            return []
        return super().predict_baselines(config, context, train, test)

    def picture_columns(self, config: TaskConfig) -> Sequence[str]:
        """Return those of the rows."""
        return config.data.columns.pictures

    def read_labelled(
        self, config: TaskConfig, context: StepContext, path: Path, folder: Path
    ) -> tuple[list[Example], DropLog]:
        """Return the rows of other files with the same columns."""
        return read_labelled_rows(config, path, folder)

    def make_question(self, config: TaskConfig, request: Request, folder: Path) -> Example:
        """Return the prompt of a row."""
        return ask_about_row(config.data, request.row, request.pictures, folder)

    def describe_prompt(self, config: TaskConfig) -> Sequence[Message]:
        """Return the templates of the prompt."""
        asked = config.data.columns.prompt
        user = Message("user", asked if "{" in asked else f"{{{{ {asked} }}}}")
        return [*([Message("system", config.data.system)] if config.data.system else []), user]

    def estimate(self, config: TaskConfig) -> Estimate:
        """Return rows, sources and lengths; the rewards are loaded: what stops them is reported."""
        make_rewards(config)
        with TemporaryDirectory() as folder:
            loaded = load_rows(config, Path(folder))
        train = loaded.splits["train"]
        are_left = all(picture.path.is_file() for e in train[:1] for picture in e.pictures)
        write, given = config.answer.write, list_targets(config, loaded)
        taught, wrong = check_targets(train, given, config.answer)
        dropped = "".join(f"; {num:,} x {why}" for why, num in loaded.drops.counts.items())
        num_used = sum(map(len, loaded.splits.values()))
        return Estimate(
            num_prompts=len(train),
            num_sft_rows=sum(example.id in taught for example in train),
            # Of all splits, those of training first: what is asked later has to fit, too.
            rows=[
                (e, taught.get(e.id) or (write(e.label) if e.label else ""))
                for split in loaded.splits.values()
                for e in split
            ],
            sources=loaded.sources,
            facts=[
                *(("warning", finding.message) for finding in (*loaded.findings, *wrong)),
                ("rows", f"{num_used:,} of {loaded.num_rows:,} used{dropped}"),
            ],
            later={} if taught or config.sft is None else {"sft": [NOTHING_TAUGHT]},
            num_readers=int("fluency" in config.rewards),
            # Pictures that rows hold themselves are files only where a run has prepared them.
            case=partial(make_case, config, train, taught) if are_left else None,
        )


def _digest_files(section: str, names: Iterable[str]) -> dict[str, str]:
    """Return the digests of functions' files by the path of the setting that names them."""
    files = {name: split_function(name)[0] for name in names if ":" in name}
    found = {f"{section}.{name}": digest_functions(file) for name, file in files.items()}
    return drop_folders(found)


TASK = OwnTask()
