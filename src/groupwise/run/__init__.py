"""Runs: a Task says what is its own, stages do the rest, and steps are reused or continued.

Its modules are public.
"""
