from groupwise.learning.certificate import (
    Certificate,
    Measured,
    UsedLabel,
    Verification,
    read_certificate,
    verify,
)
from groupwise.learning.loop import LogLine, Loop, begin_loop, find_loop, read_loop_settings
from groupwise.learning.rounds import Learner, Standing, choose_next
from groupwise.learning.settings import (
    LoopSettings,
    RoundConfig,
    RoundData,
    RoundSettings,
    VariantSettings,
)
from groupwise.learning.variants import make_variants, replace_words

__all__ = [
    "Certificate",
    "Learner",
    "LogLine",
    "Loop",
    "LoopSettings",
    "Measured",
    "RoundConfig",
    "RoundData",
    "RoundSettings",
    "Standing",
    "UsedLabel",
    "VariantSettings",
    "Verification",
    "begin_loop",
    "choose_next",
    "find_loop",
    "make_variants",
    "read_certificate",
    "read_loop_settings",
    "replace_words",
    "verify",
]
