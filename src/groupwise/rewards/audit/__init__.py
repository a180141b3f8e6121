"""The audit of rewards before training: one row per probe, with the answer that shows a fault."""
