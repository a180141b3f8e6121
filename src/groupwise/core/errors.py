"""The one error tree: what went wrong, what was given, what is allowed, what to do.

These are mistakes a user can fix. The command line prints them as one sentence and
exits with 2; anything else that is raised is a bug and exits with 1.
"""


class GroupwiseError(Exception):
    """A problem that a user can fix.

    Args:
        what: what went wrong, a clause without a final stop.
        got: what was given, if that helps.
        expected: what is allowed.
        fix: what to do now, as an instruction.
    """

    def __init__(
        self,
        what: str,
        *,
        got: object = None,
        expected: object = None,
        fix: str | None = None,
    ) -> None:
        parts = [what]
        parts += [] if got is None else [f"got {got}"]
        parts += [] if expected is None else [f"expected {expected}"]
        parts += [] if fix is None else [fix]
        has_end = parts[-1].endswith((".", "!")) or "\n" in parts[-1]
        super().__init__("; ".join(parts) + ("" if has_end else "."))


class ConfigError(GroupwiseError):
    """A configuration that cannot be used."""


class DataError(GroupwiseError):
    """Input data that is missing, unreadable or inconsistent."""


class ModelError(GroupwiseError):
    """A model folder, processor or adapter that cannot be used."""


class RewardError(GroupwiseError):
    """A reward that is defined or combined wrongly."""


class ScoreRangeError(RewardError):
    """A score outside [0, 1], which would clash with the scale of every other reward."""


class JudgeError(GroupwiseError):
    """A judge that cannot be reached or trusted."""


class SandboxError(GroupwiseError):
    """A sandbox that cannot be started safely."""


class TrainingError(GroupwiseError):
    """A training run that would give a wrong result."""


class EvaluationError(GroupwiseError):
    """Predictions or metrics that cannot be compared or reported."""


class ServingError(GroupwiseError):
    """A server that cannot answer."""


class RunError(GroupwiseError):
    """A run folder that is in use, belongs to another run or cannot be written."""
