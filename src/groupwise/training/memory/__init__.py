"""Memory of training: known before a step, and told while it goes on.

A step is rehearsed on tensors without numbers: ``live`` counts bytes of tensors, ``rehearsal`` lets
code run without numbers, ``steps`` has the phases of a step, and ``estimate`` adds up what a device
holds. ``taken`` tells what each process of a training takes.
"""
