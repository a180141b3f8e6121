"""What is demo_selection's own: lists of demonstrations instead of a language model are trained."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from groupwise.core import Example, digest_file
from groupwise.data.examples import DropLog
from groupwise.data.rows import PICTURE_COLUMNS
from groupwise.run.recipe import Preview
from groupwise.run.settings import place_base
from groupwise.run.stages import POLICY, Stage, digest_models
from groupwise.run.steps import StepContext
from groupwise.run.task import Task
from groupwise.serving import Request
from groupwise_recipes.demo_selection.config import DemoSelectionConfig
from groupwise_recipes.demo_selection.data_stages import (
    list_shown,
    read_items,
    run_answerer,
    run_audit,
    run_features,
    run_prepare,
)
from groupwise_recipes.demo_selection.evaluate_stage import measure_labelled, run_evaluate
from groupwise_recipes.demo_selection.list_stages import (
    run_candidates,
    run_candidates_again,
    run_given,
    run_grpo,
    run_pointwise,
    run_rce,
)
from groupwise_recipes.demo_selection.predictor import (
    DemoPredictor,
    ask_about_picture,
    read_labelled_questions,
)
from groupwise_recipes.demo_selection.preview import preview_run
from groupwise_recipes.demo_selection.vqa import digest_vqa_pictures

if TYPE_CHECKING:
    from groupwise.data.audit import DataAudit
    from groupwise.run.evaluating import Labelled

_OWN = "groupwise_recipes.demo_selection"
_ASKED = "server form asking"
_LISTS = "pools recording refuse_poor reward"


class DemoSelection(Task[DemoSelectionConfig]):
    """Demonstrations for a frozen model are picked and ordered by a selector, which is trained."""

    config_type = DemoSelectionConfig
    things = "queries"
    headline = "vqa_mean"

    def inputs(self, config: DemoSelectionConfig) -> Mapping[str, str]:
        """Return what questions, their pictures and the CLIP model are known by."""
        vqa = config.data.vqa
        files = {} if vqa is None else {"data.vqa.train": vqa.train, "data.vqa.test": vqa.test}
        found: dict[str, str] = {}
        for path, part in files.items():
            for name in ("questions", "annotations"):
                found[f"{path}.{name}"] = digest_file(getattr(part, name))
            pictures = digest_vqa_pictures(part.questions, pictures=part.pictures)
            found[f"{path}.pictures"] = pictures
        given = {
            "data.recorded": config.data.recorded,
            "rce.weights": config.rce.weights,
        }
        found |= {name: digest_file(path) for name, path in given.items() if path is not None}
        return {**found, **digest_models({"features.base": config.features.base})}

    def stages(self, config: DemoSelectionConfig) -> list[Stage]:
        """Return data, answerer and features, candidates and trainings, evaluation and report."""
        lists = ["candidates", *(["candidates_again"] if config.record_again else [])]
        sources = f"prepare features {'answerer' if config.is_taught else ''}"
        asked = f"{_ASKED} {POLICY if config.server is None else 'model.max_pixels'}"
        return [
            *_list_data_stages(is_taught=config.is_taught),
            *_list_trainings(config, sources, lists, asked),
            Stage(
                name="evaluate",
                work=run_evaluate,
                summary="every way of choosing on the test split",
                reads=f"seed features {asked} pools recording evaluation rce.epochs rce.weights "
                "grpo.epochs metric_versions",
                uses=f"{sources} rce grpo pointwise {lists[-1]}",
            ),
            Stage(
                name="report",
                work="evaluating:run_report",
                summary="report.html and report.md",
                uses="audit rce grpo evaluate",
                files=("report.html", "report.md"),
            ),
        ]

    def preview(self, config: DemoSelectionConfig) -> Preview:
        """Return how many prompts are asked, and what would stop the run."""
        return preview_run(config)

    def find_base(self, config: DemoSelectionConfig, run: Path) -> str | Path:
        """Return the answerer; of a served one, the name that it is served under."""
        if config.server is not None:
            return config.server.model
        return run / "answerer" / "policy" if config.is_taught else place_base(config, run)

    def picture_columns(self, config: DemoSelectionConfig) -> Sequence[str]:
        """Return the names that the picture's column may have."""
        return PICTURE_COLUMNS

    def make_question(self, config: DemoSelectionConfig, request: Request, folder: Path) -> Example:
        """Return the question of a row about its one picture."""
        return ask_about_picture(request)

    def read_labelled(
        self, config: DemoSelectionConfig, context: StepContext, path: Path, folder: Path
    ) -> tuple[list[Example], DropLog]:
        """Return the questions of a table, or of official files that a YAML file names."""
        items = read_items(context.output_of("prepare"))
        return read_labelled_questions(path, list_shown(items))

    def measure_labelled(self, asked: "Labelled") -> "tuple[DataAudit, int]":
        """Fill the cells of a selector and of its rivals that are not trained."""
        return measure_labelled(self, asked)

    def open_predictor(
        self, config: DemoSelectionConfig, policy: str | Path, run: Path
    ) -> DemoPredictor:
        """Return what chooses demonstrations and asks the answerer with them."""
        return DemoPredictor(config, self.find_base(config, run), policy=Path(policy), run=run)


def _list_data_stages(*, is_taught: bool) -> list[Stage]:
    teach = Stage(
        name="answerer",
        work=run_answerer,
        summary="teach a tiny model to look words up in demonstrations",
        reads="seed model.base model.quantization teach_steps form asking",
        uses="prepare",
        code=f"{_OWN}.answerer {_OWN}.episodes {_OWN}.demonstration_use",
    )
    return [
        Stage(
            name="prepare",
            work=run_prepare,
            summary="train items and queries",
            reads="seed data",
            code="groupwise_drawn.dialects",
        ),
        Stage(
            name="audit",
            work=run_audit,
            summary="what the data can be trusted for",
            uses="prepare",
        ),
        *([teach] if is_taught else []),
        Stage(
            name="features",
            work=run_features,
            summary="embeddings of pictures and questions",
            reads="seed features teach_steps",
            uses="prepare",
            code=f"{_OWN}.tiny_clip",
        ),
    ]


def _list_trainings(
    config: DemoSelectionConfig, sources: str, lists: Sequence[str], asked: str
) -> list[Stage]:
    """Return what records lists and what is trained on them."""
    take = Stage(
        name="candidates",
        work=run_given,
        summary="lists that were recorded before",
        reads="data.recorded refuse_poor reward",
        uses="prepare",
    )
    record = Stage(
        name="candidates",
        work=run_candidates,
        summary="lists that an untrained selector, neighbours and chance give",
        reads=f"seed features {asked} {_LISTS} selector",
        uses=sources,
    )
    warm_up = Stage(
        name="rce",
        work=run_rce,
        summary="reward-conditioned estimation",
        reads="seed features reward selector rce",
        uses="prepare features candidates",
        code=f"{_OWN}.objectives",
    )
    train = Stage(
        name="grpo",
        work=run_grpo,
        summary="GRPO on the recorded lists",
        reads="seed features reward grpo",
        uses=f"prepare features rce {lists[-1]}",
        code=f"{_OWN}.objectives",
    )
    rival = Stage(
        name="pointwise",
        work=run_pointwise,
        summary="logistic regression on the items of the same lists, a rival",
        reads="seed features reward",
        uses=f"prepare features {' '.join(lists)}",
        code=f"{_OWN}.pointwise",
    )
    again = [_record_again(sources, asked)] if "candidates_again" in lists else []
    first = record if config.data.recorded is None else take
    return [first, warm_up, *again, train, rival]


def _record_again(sources: str, asked: str) -> Stage:
    return Stage(
        name="candidates_again",
        work=run_candidates_again,
        summary="lists that the selector after RCE, neighbours and chance give",
        reads=f"seed features {asked} {_LISTS}",
        uses=f"{sources} rce",
    )


TASK = DemoSelection()
