"""Policies: loading, tiny random-init models, and what of a model trains.

Its modules are public.
"""
