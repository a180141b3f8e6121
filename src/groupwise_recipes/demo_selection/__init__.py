"""Demonstration selection: a small pointer network picks and orders in-context examples."""
