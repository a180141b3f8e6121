"""Problems of mathematics, code and question answering, as public sets publish them."""

from groupwise.data.problems.choices import letter_options
from groupwise.data.problems.fetching import fetch_problems
from groupwise.data.problems.loading import (
    LoadedProblems,
    ProblemSource,
    load_problems,
    report_test_parts,
)
from groupwise.data.problems.mixing import (
    MixedProblems,
    MixSettings,
    mix_problems,
    read_problems,
    write_mix,
)
from groupwise.data.problems.problem import Problem, ProblemType
from groupwise.data.problems.sets import PUBLISHED_SETS, SET_NAMES, SetName

__all__ = [
    "PUBLISHED_SETS",
    "SET_NAMES",
    "LoadedProblems",
    "MixSettings",
    "MixedProblems",
    "Problem",
    "ProblemSource",
    "ProblemType",
    "SetName",
    "fetch_problems",
    "letter_options",
    "load_problems",
    "mix_problems",
    "read_problems",
    "report_test_parts",
    "write_mix",
]
