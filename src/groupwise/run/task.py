"""A Task: what is a recipe's own, and nothing else; the usual way is in ``stages``.

A method gets a view of the config that holds the settings its part declares, beside the flow's
own; reading any other one raises.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, Protocol, TypeVar

from groupwise import core
from groupwise.core import Completion, Config, ConfigError, Example, Finding, Message
from groupwise.data.examples import DropLog, read_examples
from groupwise.data.rows import read_asked_rows
from groupwise.evaluation.baselines import JOINT, MAJORITY, NEAREST, PICTURE_ONLY, TEXT_ONLY
from groupwise.judges import Judge
from groupwise.rewards import Parsed, Parser, RewardCase, RewardSet
from groupwise.run.recipe import Preview, Recipe
from groupwise.run.settings import RunConfig, place_base
from groupwise.run.steps import StepContext
from groupwise.serving import Predictor, Request

if TYPE_CHECKING:
    from groupwise.data.audit import DataAudit
    from groupwise.evaluation.baselines import Features, Learn
    from groupwise.evaluation.metrics import Metric
    from groupwise.evaluation.predictions import Measure, Prediction, RunPolicy
    from groupwise.evaluation.report.page import Section
    from groupwise.models.policy import Policy
    from groupwise.run.evaluating import Labelled
    from groupwise.run.predict import FinishedRun
    from groupwise.run.stages import Stage
    from groupwise.training.settings import RowsOfEpoch


C = TypeVar("C", bound=RunConfig)

PartName = Literal["data", "audit", "parser", "warmup", "rewards", "measures"]
Splits = Mapping[str, Sequence[Example]]
Ask = Callable[[Sequence[Example]], Sequence[str]]
"""Returns a policy's greedy answers to questions."""


@dataclass(frozen=True, slots=True)
class Part:
    """What some methods of a task depend on; names with spaces between them.

    ``reads`` are paths of the config. ``code`` are modules and packages that decide the outcome and
    are edited between releases (prompts, parsers, rewards).
    """

    reads: str = ""
    code: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """What a dry run says of the data."""

    num_prompts: int  # about how many GRPO trains on
    num_sft_rows: int  # about how many rows an epoch of the warm-up has
    # Questions for GRPO, each with the answer that is taught or right: shown, and tokens counted.
    rows: Sequence[tuple[Example, str]] = ()
    tokens_per_prompt: int = 0  # without rows: of the longest prompts, pictures included
    tokens_per_answer: int = 0  # without rows: that an answer in the right form may have
    # Rows by split and by where they come from.
    sources: Mapping[str, Mapping[str, int]] = field(default_factory=dict[str, Mapping[str, int]])
    facts: Sequence[tuple[str, str]] = ()  # names and values for people
    # By the name of a stage, clauses about what would stop it.
    later: Mapping[str, Sequence[str]] = field(default_factory=dict[str, Sequence[str]])
    needs_base: bool = True  # whether the base must be on this machine
    num_readers: int = 0  # copies of the base, beside the policy, that read answers for a reward
    # Returns what the rewards are audited with; None: it is not known before ``prepare``.
    case: Callable[[], RewardCase] | None = None


_BASELINES = (MAJORITY, NEAREST, TEXT_ONLY, PICTURE_ONLY, JOINT)


class Judging(Protocol):
    """A judge among the rewards, or several."""

    def report(self) -> Mapping[str, object]:
        """Return what was counted, as JSON values."""
        ...


class Task(Generic[C]):
    """A recipe's own.

    ``parts`` say what methods depend on: ``data`` (``prepare``), ``audit`` (``find_in_data``,
    ``find_in_settings``), ``parser``, ``warmup`` (also ``control``), ``rewards`` (also ``judge``
    and ``make_case``; without it none are audited) and ``measures`` (``predict_baselines``,
    ``joint_candidates``, ``probe``, ``complete``, ``describe``).
    """

    config_type: ClassVar[type[RunConfig]]
    parts: ClassVar[Mapping[PartName, Part]] = {}
    # The stage that writes ``{train,validation,test}.jsonl``.
    data_stage: ClassVar[str] = "prepare"
    # Further stages whose outputs the part ``measures`` reads, with spaces between them.
    measured_from: ClassVar[str] = ""
    # What is asked about, a plural for progress lines.
    things: ClassVar[str] = "questions"
    # Fields that measures are told by, where every item has them and they have 20 values or less.
    slices: ClassVar[Sequence[str]] = ()
    # Of the recipe's own, beside those of every recipe, whatever a config says.
    measures: ClassVar[tuple[Measure, ...]] = ()
    # The measure that checkpoints are chosen by and that a finished run says first; empty:
    # accuracy, or the first of ``list_measures`` where answers have no reference.
    headline: ClassVar[str] = ""
    # What the policies of ``predict_baselines`` are.
    baselines: ClassVar[tuple[RunPolicy, ...]] = _BASELINES
    # Field with the words that were read in an example's pictures and stand in its prompt, for the
    # joint baseline; None: there is none.
    read: ClassVar[str | None] = None
    # Columns of a row whose words may become synonyms: variants of people's corrections.
    worded: ClassVar[Sequence[str]] = ()
    # Whether the untrained policy's answers, if they are labels, are read leniently, too.
    reads_prompting: ClassVar[bool] = False
    # Whether a tiny base that is built here starts with heads that look at the tokens before.
    looks_back: ClassVar[bool] = False
    # Whether a row is a picture and a text ``task``, which ``serve`` takes under ``/v1/screens``,
    # too; ``judge_of_screens`` is asked about the two.
    has_screens: ClassVar[bool] = False

    @classmethod
    def make_recipe(cls, name: str) -> Recipe[Any]:
        """Return the recipe of this task, for a class that needs no arguments."""
        from groupwise.run.recipe import make_recipe

        summary = (cls.__doc__ or name).strip().partition("\n")[0]
        return make_recipe(
            cls(), name=name, summary=summary, config_type=cls.config_type, config_folder=Path()
        )

    # What comes from outside, and what becomes of it.

    def inputs(self, config: C) -> Mapping[str, str]:
        """Return digests of what settings name from outside, by the path of the setting.

        The base of ``model`` is known without.
        """
        return {}

    def reward_inputs(self, config: C) -> Mapping[str, str]:
        """Return those of ``inputs`` that are code of rewards: the audit of rewards reads them."""
        return {}

    def facts(self, config: C, run: Path) -> Mapping[str, Any]:
        """Return what stages depend on beside settings, by names that they read."""
        return {}

    def stages(self, config: C) -> list[Stage]:
        """Return the stages: the usual ones; a recipe may leave out, replace and add."""
        from groupwise.run.stages import list_usual_stages

        return list_usual_stages(self, config)

    def policies(self, context: StepContext) -> Sequence[RunPolicy]:
        """Return what the policies of a run are, in the order of reports; ``evaluate`` asks."""
        from groupwise.run.asking import list_usual_policies

        return list_usual_policies(self, context)

    def prepare(self, config: C, folder: Path) -> None:
        """Write ``{train,validation,test}.jsonl``, what ``warmup`` reads, and ``source.json``."""
        raise NotImplementedError

    def find_in_data(self, config: C, prepared: Path) -> Sequence[Finding]:
        """Return what the data audit is to say beside what it finds."""
        return ()

    def find_in_settings(self, config: C) -> Sequence[Finding]:
        """Return what whoever reads a number has to know of the settings, whatever the data."""
        return ()

    def show_warmup(self, config: C, prepared: Path) -> Sequence[Example]:
        """Return examples with the pictures of the warm-up, for the search for near duplicates."""
        return ()

    def pretrain(self, context: StepContext, base: Path) -> None:
        """Teach a tiny base what published models know before; in place. The usual: nothing."""

    # What is asked, taught and rewarded.

    def parser(self, config: C) -> Parser:
        """Return what reads, writes and measures answers."""
        raise NotImplementedError

    def describe_parser(self, config: C) -> Mapping[str, Any]:
        """Return what decides how answers are read, as JSON values."""
        parser = self.parser(config)
        own = core.dump_config(parser) if isinstance(parser, Config) else {}
        return {"kind": type(parser).__name__, **own}

    def warmup(self, config: C, folder: Path) -> RowsOfEpoch:
        """Return the rows of SFT, from the folder of the data stage."""
        raise NotImplementedError

    def begins_easy(self, config: C, prepared: Path, split: str) -> bool:
        """Return whether somebody has said which rows of ``warmup`` or ``train`` are easy.

        Then training begins with those. ``prepared`` is the folder of the data stage.
        """
        return False

    def control(self, config: C, examples: Sequence[Example], ask: Ask) -> RowsOfEpoch:
        """Return what SFT on the labels of GRPO's prompts teaches.

        ``ask`` returns the answers of the policy that the control starts from.
        """
        from groupwise.training.settings import SftRow

        parser = self.parser(config)
        rows = [SftRow(example, parser.write(str(example.label))) for example in examples]
        return lambda _: rows

    def judge(self, config: C, folder: Path) -> Judging | None:
        """Return what judges among the rewards, opened in a folder; None: nothing does."""
        return None

    def judge_of_screens(self, config: C, folder: Path) -> Judge | None:
        """Return what ``serve`` asks where a policy is unsure of a screen; None: nothing."""
        return None

    def rewards(self, config: C, judge: Any = None) -> RewardSet:
        """Return what GRPO is rewarded by; ``judge`` is what the method of this name opened."""
        raise NotImplementedError

    def explain_bound_rewards(self, config: C) -> str | None:
        """Return why ``judge`` and ``rewards`` need more of a run than its config; None if not."""
        return None

    def make_case(self, config: C, folder: Path) -> RewardCase:
        """Return what the rewards are audited with, from the folder of the data stage."""
        return RewardCase(
            rewards=self.rewards(config),
            examples=read_examples(folder / "train.jsonl"),
            parser=self.parser(config),
        )

    def weigh(self, config: C) -> Mapping[str, float]:
        """Return the weights of the rewards that are there, by name."""
        raise NotImplementedError

    def describe_weights(self, config: C) -> str:
        """Return the weights that count, as one line."""
        from groupwise.rewards import describe_weights

        return describe_weights(self.weigh(config))

    # What is measured.

    def list_measures(self, config: C) -> Sequence[Measure]:
        """Return the measures of the recipe's own; the first one leads where there is no label."""
        return self.measures

    def list_compared(self, config: C) -> Sequence[str]:
        """Return the names of measures by which policies are compared beside the headline."""
        return ()

    def score_answers(
        self, config: C, run: Path, examples: Sequence[Example], answers: Sequence[Completion]
    ) -> Sequence[Mapping[str, float]]:
        """Return each answer's own measures that need nothing but the answer, in [0, 1].

        What cannot be scored is left out.
        """
        return [{} for _ in examples]

    def choose_heldout(self, config: C, examples: Sequence[Example]) -> Sequence[Example]:
        """Return the validation items behind the held-out curve of GRPO."""
        settings: Any = config  # a FlowConfig, as the usual stages need
        return examples[: settings.evaluation.num_heldout_items]

    def read_answers(
        self, config: C, run: Path, examples: Sequence[Example], texts: Sequence[str]
    ) -> Sequence[Parsed]:
        """Return what a policy's texts answer, one for each example, in the run folder ``run``.

        An answer that counts as right has the label's own spelling.
        """
        parser = self.parser(config)
        pairs = list(zip(examples, texts, strict=True))
        found = [parser.parse(text, example) for example, text in pairs]
        are_right = [
            None not in (one.label, pair[0].label) and parser.measure(*pair) == 1.0
            for one, pair in zip(found, pairs, strict=True)
        ]
        return [
            replace(one, label=str(example.label)) if is_right else one
            for one, is_right, example in zip(found, are_right, examples, strict=True)
        ]

    def measure_heldout(
        self, config: C, examples: Sequence[Example], texts: Sequence[str]
    ) -> Mapping[str, float]:
        """Return measures of answers beside accuracy and the share of invalid ones."""
        return {}

    def predict_baselines(
        self, config: C, context: StepContext, train: Sequence[Example], test: Sequence[Example]
    ) -> list[Prediction]:
        """Return the predictions of what needs no policy; where answers are labels, of more."""
        from groupwise.evaluation import baselines as known
        from groupwise.run.probing import Probes

        told = {"split": "test", "seed": config.seed}
        found = known.predict_majority(train, test, **told)
        if not self.parser(config).labels:
            return found + known.predict_nearest(train, test, **told)
        found += known.predict_text_only(train, test, **told)
        if all(len(example.pictures) == len(train[0].pictures) > 0 for example in train):
            found += known.predict_picture_only(train, test, **told)
        probes = Probes(config, self.find_base(config, context.run), context, train, test)
        seen: Any = {"suggest": self.joint_candidates, "read": self.read, "embed": probes}
        return found + known.predict_joint(train, test, record=probes.record, **seen, **told)

    def joint_candidates(
        self, train: Sequence[Example], features: Features, seed: int
    ) -> Mapping[str, Learn]:
        """Return what the joint baseline is to try beside the usual, by what it sees.

        ``features`` are what is seen of the training examples, whose fields say more than those of
        a test; ``seed`` is of the candidates.
        """
        return {}

    def ask_rivals(
        self, config: C, context: StepContext, policy: Policy, splits: Splits
    ) -> list[Prediction]:
        """Return what the base reaches on ``test`` by other means than one prompt.

        ``policy`` is the base, ``splits`` are ``train`` and ``test``.
        """
        return []

    def probe(
        self, config: C, ask: Ask, examples: Sequence[Example], texts: Sequence[str]
    ) -> list[dict[str, float]]:
        """Return scores of each answer that take further questions to the same policy."""
        return [{} for _ in examples]

    def show(self, config: C, context: StepContext, test: Sequence[Example]) -> Sequence[Example]:
        """Return items with the pictures that belong to them."""
        return test

    def complete(
        self,
        config: C,
        context: StepContext,
        predictions: Sequence[Prediction],
        test: Sequence[Example],
    ) -> list[Prediction]:
        """Return the predictions with the recipe's own scores and what reports show of them."""
        return list(predictions)

    def describe(
        self,
        config: C,
        context: StepContext,
        predictions: Sequence[Prediction],
        metrics: Sequence[Metric],
        test: Sequence[Example],
    ) -> Sequence[Section]:
        """Return what the recipe adds to the report, and write files of its own."""
        return ()

    def estimate(self, config: C) -> Estimate:
        """Return what a dry run says; what stops ``prepare`` is raised."""
        raise NotImplementedError

    def preview(self, config: C) -> Preview:
        """Return all that a dry run says and shows; usually made of ``estimate``."""
        from groupwise.run.preview import preview_run

        return preview_run(self, config)

    # What a finished run is asked.

    def list_verbs(self) -> list[str]:
        """Return the commands that a finished run can be given to."""

        def has(*names: str) -> bool:
            return any(getattr(type(self), name) is not getattr(Task, name) for name in names)

        asked = ["predict", "serve"] if has("make_question", "open_predictor") else []
        return [*asked, *(["evaluate"] if has("read_labelled") else []), "export"]

    def picture_columns(self, config: C) -> Sequence[str]:
        """Return the columns that name the pictures of a row, relative to its file."""
        return ()

    def list_requests(self, config: C, path: Path) -> tuple[Sequence[Request], DropLog]:
        """Return what a file or folder asks, and what of it cannot be asked: the rows of a table.

        A DataError if nothing can be read there.
        """
        rows, drops = read_asked_rows(path, pictures=self.picture_columns(config))
        return [Request(row.where, row.values, row.pictures) for row in rows], drops

    def read_labelled(
        self, config: C, context: StepContext, path: Path, folder: Path
    ) -> tuple[Sequence[Example], DropLog]:
        """Return the labelled rows of other data, as the run would ask them, and what is no row.

        ``path`` is a file or folder; ``folder`` is for pictures that are stored, and what is made
        on the way: a later call finds it again. A DataError if no row can be used.
        """
        raise ConfigError(f"{type(self).__name__} reads no labelled rows of other data")

    def measure_labelled(self, asked: Labelled) -> tuple[DataAudit, int]:
        """Measure a policy on what ``read_labelled`` found, as the run measured it.

        Returns the audit of the training splits and these rows, and how many training has seen.
        """
        from groupwise.run.evaluating import measure_labelled

        return measure_labelled(self, asked)

    def make_question(self, config: C, request: Request, folder: Path) -> Example:
        """Return what a policy is asked: the prompt it was trained on, without a label.

        ``folder`` is for pictures that are stored. A DataError if nothing can be asked, such as for
        a missing column.
        """
        raise NotImplementedError

    def describe_tools(self, config: C) -> Mapping[str, Any]:
        """Return what beside settings decides what is asked of a row, as JSON values."""
        return {}

    def check_tools(self, config: C, run: Path) -> None:
        """Refuse, by a RunError, to ask new rows where ``describe_tools`` is not as in a run."""

    def describe_prompt(self, config: C) -> Sequence[Message]:
        """Return the prompt with ``{{ column }}`` for what comes from a row; nothing: unknown."""
        return ()

    def open_predictor(self, config: C, policy: str | Path, run: Path) -> Predictor:
        """Return what answers requests with a policy (folder or hub id) of the run folder."""
        from groupwise.run.asking import read_temperatures
        from groupwise.run.predict import PolicyPredictor

        return PolicyPredictor(self, config, policy, temperatures=read_temperatures(run))

    # Where things are.

    def find_origin(self, config: C) -> FinishedRun | None:
        """Return the run whose task and settings this one goes on with; None: its own."""
        return None

    def find_base(self, config: C, run: Path) -> str | Path:
        """Return the folder or hub id of the untrained policy."""
        return run / "prepare" / "base" if config.model.is_tiny else place_base(config, run)

    def list_sources(self, config: C) -> str:
        """Return the stages that all trainings read: data, and the base that is built here."""
        return self.data_stage
