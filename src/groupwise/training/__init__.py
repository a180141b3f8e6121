"""Training: supervised fine-tuning and GRPO. The only door to TRL."""

from groupwise.core import import_late as _import_late

__getattr__, __dir__, __all__ = _import_late(__name__, __file__)
