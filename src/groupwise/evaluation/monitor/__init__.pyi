"""Following a run: its steps, the series of its trainings, and alarms. Nothing is drawn here.

The command line and the report show what this package reads; neither computes an alarm.
"""

from groupwise.evaluation.monitor.alarms import (
    Alarm,
    AlarmName,
    AlarmSettings,
    find_alarms,
    find_stop,
)
from groupwise.evaluation.monitor.history import Facts, History, Series, Tally
from groupwise.evaluation.monitor.memory import ProcessMemory
from groupwise.evaluation.monitor.state import (
    RunReader,
    RunState,
    StepState,
    TrainingState,
)
from groupwise.evaluation.monitor.words import (
    advise,
    describe_alarm,
    describe_value,
    is_share,
    state_alarm,
    title_series,
)
from groupwise.evaluation.report.phrases import Language

__all__ = [
    "Alarm",
    "AlarmName",
    "AlarmSettings",
    "Facts",
    "History",
    "Language",
    "ProcessMemory",
    "RunReader",
    "RunState",
    "Series",
    "StepState",
    "Tally",
    "TrainingState",
    "advise",
    "describe_alarm",
    "describe_value",
    "find_alarms",
    "find_stop",
    "is_share",
    "state_alarm",
    "title_series",
]
