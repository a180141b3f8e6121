"""Whether the pictures that are asked about look like those of the training, window after window.

Screens of one sitting look alike, so that each session counts once in a window; rows that name no
session count each. Where they are of the same few people all the same, the alarm comes too often.
"""

from groupwise.evaluation import ALARM_LEVEL, DriftReference
from groupwise.serving.meters import Meters


class DriftWatch:
    """Collects the distances of served pictures and tells when they are others than before.

    Args:
        reference: of the training.
        size: pictures in a window; windows follow each other, so that no picture is tested twice.
        meters: what is told.
    """

    def __init__(self, reference: DriftReference, size: int, meters: Meters) -> None:
        self.reference = reference
        self._size = size
        self._meters = meters
        self._distances: list[float] = []
        self._sessions: set[str] = set()

    def add(self, distance: float, session: str) -> None:
        """Count a picture; at the end of a window tell how it compares."""
        if session in self._sessions:
            return
        if session:
            self._sessions.add(session)
        self._distances.append(distance)
        if len(self._distances) < self._size:
            return
        gap, p_value = self.reference.compare(self._distances)
        self._meters.drift_gap.set(gap)
        self._meters.drift_p_value.set(p_value)
        self._meters.drift_alarm.set(p_value <= ALARM_LEVEL)
        self._distances, self._sessions = [], set()
