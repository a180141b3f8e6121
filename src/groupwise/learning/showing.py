"""A loop for the page of rounds."""

from pathlib import Path

from groupwise.core import STEP_DONE, read_jsonl
from groupwise.learning.certificate import Certificate, read_certificate
from groupwise.learning.loop import Loop
from groupwise.serving.review import ShownCandidate, ShownChange, ShownLook, ShownRounds

_STEPS = ("prepare", "audit", "audit_rewards", "baselines", "sft", "grpo", "evaluate", "decide")


class LoopOnPage:
    """What a server shows of a loop.

    Args:
        loop: the loop.
    """

    def __init__(self, loop: Loop) -> None:
        self._loop = loop

    def show(self) -> ShownRounds:
        """Return what there is to see of it now."""
        loop = self._loop
        return ShownRounds(
            candidates=tuple(_show_round(loop, run) for run in reversed(loop.rounds)),
            changes=tuple(
                ShownChange(line.at, line.event, line.version) for line in reversed(loop.read_log())
            ),
        )

    def find_certificate(self, name: str) -> Path | None:
        """Return the file of a certificate; None: there is none of this name."""
        return next((p for p in self._loop.certificates.glob("*.json") if p.name == name), None)


def _show_round(loop: Loop, run: Path) -> ShownCandidate:
    metrics = run / "grpo" / "metrics.jsonl"
    rows = read_jsonl(metrics) if metrics.is_file() else []
    undone = [name for name in _STEPS if not (run / name / STEP_DONE).is_file()]
    paths = sorted(loop.certificates.glob(f"{run.name}-*.json"), reverse=True)
    return ShownCandidate(
        number=int(run.name),
        step=undone[0] if undone else "",
        rewards=tuple(float(row["reward"]) for row in rows if "reward" in row),
        looks=tuple(_show_look(path.name, read_certificate(path)) for path in paths),
    )


def _show_look(name: str, found: Certificate) -> ShownLook:
    promotion = found.promotion
    return ShownLook(
        name=name,
        num_items=found.asked.num_items,
        num_sessions=found.asked.num_sessions,
        served=found.asked.served,
        candidate=found.asked.candidate,
        gain_low=promotion.corrected_low,
        evidence=min(promotion.better * promotion.level, 1.0),
        held_out_served=found.held_out.served,
        held_out_candidate=found.held_out.candidate,
        loss_p=promotion.not_worse,
        level=promotion.level,
        verdict=promotion.verdict,
        unbeaten=tuple(one.name for one in found.rivals if not one.is_beaten),
    )
