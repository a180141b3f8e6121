"""What GRPO of a run trains on, for another trainer: rows, rewards and launch arguments."""
