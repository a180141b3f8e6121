"""Data: screenshots, pairs, splits, and the audit that says what to trust.

Its modules are public.
"""
