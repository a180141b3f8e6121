"""Measuring policies: predictions, metrics with intervals, paired comparison, baselines, report.

Reads predictions and files; trains nothing but the baselines. Its modules are public.
"""
