"""The usual way of a recipe, once: a Task says what is its own, stages do the rest.

Its modules are public.
"""
