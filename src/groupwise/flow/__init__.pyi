"""The usual way of a recipe, once: a Task says what is its own, stages do the rest."""

from groupwise.flow.asking import answer_greedily, ask_policy, choose_items, make_ask, open_policy
from groupwise.flow.calibrating import read_temperatures
from groupwise.flow.evaluating import write_evaluation
from groupwise.flow.exporting import check_pushable, export_run, list_uploads, upload
from groupwise.flow.finished import FinishedRun, open_run
from groupwise.flow.other_data import Labelled, OtherData, evaluate_on
from groupwise.flow.prediction import (
    PolicyPredictor,
    PredictionSummary,
    answer_requests,
    name_version,
    predict_rows,
    write_prompts,
)
from groupwise.flow.preparing import build_base, rate_baselines
from groupwise.flow.preview import estimate_picture
from groupwise.flow.probing import Probes
from groupwise.flow.recipe import make_recipe
from groupwise.flow.replaying import Replay, ReplayedPart, replay_rewards
from groupwise.flow.rivals import (
    ask_best_of,
    ask_with_demonstrations,
    insert_rivals,
    list_rivals,
    tell_rivals,
)
from groupwise.flow.running import run
from groupwise.flow.served import Served, is_loop, open_served, read_served, write_served
from groupwise.flow.settings import (
    DataSettings,
    EvaluationSettings,
    FlowConfig,
    RivalSettings,
    RunConfig,
)
from groupwise.flow.sources import LoopSource, RunSource, find_source, open_judge
from groupwise.flow.stages import ASKED, LOOKS, POLICY, Stage, keep_stages, list_usual_stages
from groupwise.flow.task import Ask, Estimate, Part, PartName, Splits, Task, place_base, read_splits
from groupwise.flow.trainers import HandedOver, export_for_trainer, open_rewards
from groupwise.flow.training import run_grpo

__all__ = [
    "ASKED",
    "LOOKS",
    "POLICY",
    "Ask",
    "DataSettings",
    "Estimate",
    "EvaluationSettings",
    "FinishedRun",
    "FlowConfig",
    "HandedOver",
    "Labelled",
    "LoopSource",
    "OtherData",
    "Part",
    "PartName",
    "PolicyPredictor",
    "PredictionSummary",
    "Probes",
    "Replay",
    "ReplayedPart",
    "RivalSettings",
    "RunConfig",
    "RunSource",
    "Served",
    "Splits",
    "Stage",
    "Task",
    "answer_greedily",
    "answer_requests",
    "ask_best_of",
    "ask_policy",
    "ask_with_demonstrations",
    "build_base",
    "check_pushable",
    "choose_items",
    "estimate_picture",
    "evaluate_on",
    "export_for_trainer",
    "export_run",
    "find_source",
    "insert_rivals",
    "is_loop",
    "keep_stages",
    "list_rivals",
    "list_uploads",
    "list_usual_stages",
    "make_ask",
    "make_recipe",
    "name_version",
    "open_judge",
    "open_policy",
    "open_rewards",
    "open_run",
    "open_served",
    "place_base",
    "predict_rows",
    "rate_baselines",
    "read_served",
    "read_splits",
    "read_temperatures",
    "replay_rewards",
    "run",
    "run_grpo",
    "tell_rivals",
    "upload",
    "write_evaluation",
    "write_prompts",
    "write_served",
]
