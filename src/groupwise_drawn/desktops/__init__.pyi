"""Drawn desktops: realistic screenshots of 14 activities and task descriptions to go with them.

``draw_desktop`` draws one screen, ``write_task`` words one task, ``write_desktops`` writes a whole
set with an index. Only PIL is used. Pairing screens with tasks is left to the loaders, and the
screens are not a substitute for real ones in an evaluation.
"""

from groupwise_drawn.desktops.activities import ACTIVITIES
from groupwise_drawn.desktops.sets import draw_desktop, write_desktops
from groupwise_drawn.desktops.tasks import write_task

__all__ = ["ACTIVITIES", "draw_desktop", "write_desktops", "write_task"]
