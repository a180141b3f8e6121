"""Training: supervised fine-tuning and GRPO. The only door to TRL.

Its modules are public.
"""
