"""The public sets that are known: where they are, which of their parts may train, how they read."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from groupwise.data.problems.choices import (
    read_commonsense_qa,
    read_hotpot_qa,
    read_mmlu,
    read_squad,
)
from groupwise.data.problems.code import read_human_eval, read_mbpp
from groupwise.data.problems.maths import read_gsm8k, read_math
from groupwise.data.problems.own import WHOLE, find_own_part, read_own
from groupwise.data.problems.problem import ProblemType
from groupwise.data.problems.rows import SetRow

SetName = Literal[
    "gsm8k", "math", "humaneval", "mbpp", "mmlu", "hotpotqa", "commonsenseqa", "squad"
]
SET_NAMES: tuple[SetName, ...] = get_args(SetName)
TRAINING_PARTS = ("train", "auxiliary_train")
"""What publishers call their parts for training; every other part is for tests only."""
FEW_SHOT_PART = "prompt"


@dataclass(frozen=True, slots=True)
class PublishedSet:
    """A public set.

    Attributes:
        problem_type: of all its rows; None: each row says it, and the source that it is from.
        read: returns the fields of a problem; raises ``UnusableRowError``.
        hub: id of the data set on the hub.
        subsets: of the hub's data set; None is the only one.
        id_columns: the first that a row has names it within the set.
        may_train: whether any part of it may train.
        find_part: returns the part of a row, if it says so itself.
        usual_part: of rows of which nothing says it; empty: there is none.
    """

    problem_type: ProblemType | None
    read: Callable[[SetRow], dict[str, Any]]
    hub: str
    subsets: tuple[str | None, ...] = (None,)
    id_columns: tuple[str, ...] = ("id",)
    may_train: bool = True
    find_part: Callable[[SetRow], str] = lambda row: row.part
    usual_part: str = ""


def find_mbpp_part(row: SetRow) -> str:
    """Return the part of a row of MBPP, which its number decides wherever it stands."""
    number = int(row.require_text("task_id"))
    limits = {"prompt": 10, "test": 510, "validation": 600, "train": 974}
    return next((part for part, last in limits.items() if number <= last), "")


_MATH_SUBJECTS = (
    "algebra",
    "counting_and_probability",
    "geometry",
    "intermediate_algebra",
    "number_theory",
    "prealgebra",
    "precalculus",
)

PUBLISHED_SETS: Mapping[SetName, PublishedSet] = {
    "gsm8k": PublishedSet("math", read_gsm8k, "openai/gsm8k", ("main",)),
    "math": PublishedSet("math", read_math, "EleutherAI/hendrycks_math", _MATH_SUBJECTS),
    "humaneval": PublishedSet(
        "code",
        read_human_eval,
        "openai/openai_humaneval",
        id_columns=("task_id",),
        may_train=False,
        find_part=lambda row: "test",
    ),
    "mbpp": PublishedSet(
        "code",
        read_mbpp,
        "google-research-datasets/mbpp",
        ("full",),
        id_columns=("task_id",),
        find_part=find_mbpp_part,
    ),
    "mmlu": PublishedSet("qa", read_mmlu, "cais/mmlu", ("all",)),
    "hotpotqa": PublishedSet(
        "qa", read_hotpot_qa, "hotpotqa/hotpot_qa", ("distractor",), id_columns=("_id", "id")
    ),
    "commonsenseqa": PublishedSet("qa", read_commonsense_qa, "tau/commonsense_qa"),
    "squad": PublishedSet("qa", read_squad, "rajpurkar/squad"),
}

OWN_SET = PublishedSet(None, read_own, hub="", find_part=find_own_part, usual_part=WHOLE)
"""A user's own problems: rows that say their type themselves."""


def find_set(name: SetName | Literal["own"]) -> PublishedSet:
    """Return the set of that name, or a user's own."""
    return OWN_SET if name == "own" else PUBLISHED_SETS[name]
