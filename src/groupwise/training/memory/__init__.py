"""Memory of a training step, known before it: the step is rehearsed on tensors without numbers.

``live`` counts bytes of tensors, ``rehearsal`` lets code run without numbers, ``steps`` has the
phases of a step, and ``estimate`` adds up what a device holds.
"""
