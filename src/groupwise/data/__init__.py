"""Data: rows of tables and problems, splits, and the audit that says what to trust.

Its modules are public.
"""
