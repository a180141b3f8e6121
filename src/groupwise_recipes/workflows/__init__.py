"""Workflows: a policy writes a program over operators that a larger model answers."""
