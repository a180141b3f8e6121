"""Inference engines: one call, whatever backend answers.

Its modules are public.
"""
