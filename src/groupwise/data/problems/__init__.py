"""Problems of mathematics, code and question answering, as public sets publish them."""

from groupwise.data.problems.problem import Problem, ProblemType

__all__ = ["Problem", "ProblemType"]
