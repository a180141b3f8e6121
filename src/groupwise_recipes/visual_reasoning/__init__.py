"""Visual reasoning: five studies of GRPO on vision-language models."""
