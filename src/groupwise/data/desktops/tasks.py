"""x."""
import random
def write_task(activity: str, *, rng: random.Random, language: str = "en") -> str:
    return activity
