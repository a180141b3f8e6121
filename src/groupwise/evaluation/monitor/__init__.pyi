"""Following a run: its steps, the series of its trainings, and alarms. Nothing is drawn here.

The command line and the report show what this package reads; neither computes an alarm.
"""

from groupwise.evaluation.monitor.alarms import Alarm, AlarmLevel, AlarmName, find_alarms
from groupwise.evaluation.monitor.history import History, Series
from groupwise.evaluation.monitor.reading import RunReader, is_folder_held
from groupwise.evaluation.monitor.settings import AlarmSettings
from groupwise.evaluation.monitor.state import (
    RunPhase,
    RunState,
    StepPhase,
    StepState,
    TrainingState,
)
from groupwise.evaluation.monitor.tail import RowTail
from groupwise.evaluation.monitor.words import (
    advise,
    describe_alarm,
    describe_value,
    is_share,
    state_alarm,
    title_series,
)
from groupwise.evaluation.page.words import Language

__all__ = [
    "Alarm",
    "AlarmLevel",
    "AlarmName",
    "AlarmSettings",
    "History",
    "Language",
    "RowTail",
    "RunPhase",
    "RunReader",
    "RunState",
    "Series",
    "StepPhase",
    "StepState",
    "TrainingState",
    "advise",
    "describe_alarm",
    "describe_value",
    "find_alarms",
    "is_folder_held",
    "is_share",
    "state_alarm",
    "title_series",
]
