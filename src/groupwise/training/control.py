"""The control of GRPO: supervised training on the very labels that its rewards know."""

from groupwise.training.settings import GrpoSettings, SftSettings


def make_control_settings(sft: SftSettings, grpo: GrpoSettings) -> SftSettings:
    """Return settings of SFT that goes on where GRPO does, at its rate and for as many passes.

    It trains what GRPO trains, with GRPO's learning rate and epochs, and looks at validation as
    GRPO does; all else is as in the warm-up ``sft``. What a recipe adds to its warm-up's settings
    is left out.
    """
    values = sft.model_dump(include=set(SftSettings.model_fields))
    of_grpo = {
        "epochs": grpo.epochs,
        "learning_rate": grpo.learning_rate,
        "trainable": grpo.trainable.model_dump(),
        "validation": grpo.validation and grpo.validation.model_dump(),
    }
    return SftSettings.model_validate({**values, **of_grpo})
