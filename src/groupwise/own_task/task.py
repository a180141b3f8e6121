"""What is the recipe's own: rows of any table, asked, read and rewarded as a config says."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from groupwise.core import Example, drop_folders
from groupwise.data.tables import digest_table
from groupwise.own_task.config import TaskConfig
from groupwise.own_task.rows import RowsTask
from groupwise.own_task.scoring import STAGE as FLUENCY
from groupwise.own_task.scoring import fix_threshold, list_judged
from groupwise.rewards import digest_functions, split_function
from groupwise.run.stages import ASKED, LOOKS, Stage, digest_models
from groupwise.run.steps import StepContext
from groupwise.run.task import Part, PartName, Splits

if TYPE_CHECKING:
    from groupwise.evaluation.metrics import Metric
    from groupwise.evaluation.predictions import Prediction, RunPolicy
    from groupwise.evaluation.report.page import Section
    from groupwise.models.policy import Policy

_OWN = "groupwise.own_task"
_TABLES = " ".join(f"groupwise.data.{name}" for name in ("columns", "files", "rows", "tables"))
_REWARDS = f"groupwise.rewards groupwise.judges {_OWN}.scoring"


class OwnTask(RowsTask):
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
        judged = list_judged(config).items()
        prompts = {name: part.judge.find_prompt(are_pairs=False) for name, part in judged}
        return {
            **_digest_files("rewards", config.rewards),
            **{f"rewards.{name}.judge.prompt": one.digest for name, one in prompts.items() if one},
        }

    def stages(self, config: TaskConfig) -> list[Stage]:
        """Return the usual stages and rivals; those that look at answers read what scores them.

        Without references there is no control on labels.
        """
        stages = super().stages(config)
        if not config.has_reference:
            kept = [one for one in stages if one.name != "sft_control"]
            stages = [replace(one, uses=one.uses.replace(" sft_control", "")) for one in kept]
        more: dict[str, tuple[PartName, ...]] = {"baselines": (), "evaluate": ()}
        reads = "rivals"
        if config.rivals is not None:
            from groupwise.run.rivals import insert_rivals

            stages = insert_rivals(config.rivals, stages, LOOKS)
            more["baselines"] = ("rewards",)
            reads = "rivals grpo.temperature grpo.top_p"
        paid = "" if config.has_reference else " rewards"
        read = f" {FLUENCY}" if config.asks_for_fluency else ""
        found: list[Stage] = []
        for one in stages:
            if read and one.name == "baselines":
                found.append(
                    Stage(
                        name=FLUENCY,
                        work=fix_threshold,
                        summary="how likely the base finds its own answers",
                        reads=ASKED,
                        uses=self.data_stage,
                        code=f"groupwise.rewards.shaping {_OWN}.scoring",
                    )
                )
            if "parser" in one.parts and one.name != "prepare":
                one = replace(
                    one,
                    parts=(*one.parts, "measures", *more.get(one.name, ())),
                    reads=f"{one.reads}{paid} {reads if one.name in more else ''}",
                    uses=f"{one.uses}{read}",
                )
            found.append(one)
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
        if config.rivals is None:
            return []
        from groupwise.run.rivals import ask_rivals

        return ask_rivals(self, policy, splits, context)

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

    def predict_baselines(
        self,
        config: TaskConfig,
        context: StepContext,
        train: Sequence[Example],
        test: Sequence[Example],
    ) -> "list[Prediction]":
        """Return the usual baselines, which know answers by a reference alone."""
        return (
            super().predict_baselines(config, context, train, test) if config.has_reference else []
        )


def _digest_files(section: str, names: Iterable[str]) -> dict[str, str]:
    """Return the digests of functions' files by the path of the setting that names them."""
    files = {name: split_function(name)[0] for name in names if ":" in name}
    found = {f"{section}.{name}": digest_functions(file) for name, file in files.items()}
    return drop_folders(found)


TASK = OwnTask()
