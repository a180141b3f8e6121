"""Fast, exact GRPO: what the completions of one prompt have in common is computed once.

``trainer`` is TRL's GRPOTrainer with these levers; the mathematics stays TRL's.
"""
