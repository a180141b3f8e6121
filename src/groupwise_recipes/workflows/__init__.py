"""Workflows: a policy writes programs over operators, and is rewarded for right answers."""
