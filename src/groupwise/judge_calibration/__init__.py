"""Calibration of judges: what people decided is put to a judge, and what it says is measured.

Its modules are public.
"""
