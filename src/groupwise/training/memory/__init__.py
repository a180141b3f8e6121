"""Memory of training: estimated before it starts, and told while it goes on.

``estimate`` adds up what a process takes; ``taken`` tells what each process of a training takes.
"""
