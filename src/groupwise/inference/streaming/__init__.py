"""Batch inference for any number of groups: batches across groups, outcomes per group."""

__all__: list[str] = []
