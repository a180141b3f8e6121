"""Drawn desktops: realistic screenshots of 14 activities and task descriptions to go with them.

``draw_desktop`` draws one screen, ``write_task`` words one task, ``write_desktops`` writes a whole
set with an index. Only PIL is used. Pairing screens with tasks is left to the loaders, and the
screens are not a substitute for real ones in an evaluation.
"""
