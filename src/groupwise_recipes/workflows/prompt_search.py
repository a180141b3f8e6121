"""GEPA on the policy's prompt: programs run under it, a model reads what came of them and rewrites.

Source: Agrawal et al. 2025, "GEPA: Reflective Prompt Evolution Can Outperform Reinforcement
Learning" (2507.19457), in the authors' library ``gepa``.
"""

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from groupwise.core import ConfigError, Example
from groupwise.data.columns import find_place_problem
from groupwise_recipes.workflows.config import PLACES
from groupwise_recipes.workflows.scoring import read_problem

INSTALL = "pip install 'groupwise[gepa]'"
_PROMPT = "prompt"
_MINIBATCH_SIZE = 3
"""Problems of training that the model reads about at a time."""
_TAG = re.compile(r"\{\{.*?\}\}|\{%.*?%\}|\{#.*?#\}", re.DOTALL)
_ASK = """An assistant was given these instructions. Whatever stands in braces is filled in for each problem.
```
<curr_param>
```
These are problems, what the assistant wrote for each, and what came of it:
```
<side_info>
```
Write new instructions for the assistant with which it does better on problems like these. Put into \
them what can be learned from the examples and holds for other problems, too; do not solve the \
problems. What stands in braces must be in the new instructions just as it is here, and nothing \
else may stand in braces: PLACES. Give the whole new instructions within ``` blocks."""  # noqa: E501


@dataclass(frozen=True, slots=True)
class Trial:
    """What came of a prompt on a problem.

    Attributes:
        program: what the policy wrote.
        reward: in [0, 1].
        explanation: why it is this, for the model that reflects.
    """

    program: str
    reward: float
    explanation: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundPrompt:
    """What a search has found.

    Attributes:
        prompt: the template that is best on validation; the given one if none is better.
        score, given_score: mean rewards on validation, of this one and of the given one.
        num_executions: programs that were run, those of prompts that were not taken up, too.
        num_prompts: that were tried on all of validation, the given one among them.
        refused: how many that the model wrote were never tried, by reason: ``unchanged``,
            ``lost_place`` (nothing would be filled in there), ``new_place`` (the template would
            compute something), ``no_template``, ``too_long``.
    """

    prompt: str
    score: float
    given_score: float
    num_executions: int
    num_prompts: int
    refused: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptSearch:
    """A search by GEPA.

    Attributes:
        run: returns what came of a prompt on problems, in order.
        reflect: returns what a model says to a text.
        is_too_long: whether a prompt has more tokens than the policy is to read.
        num_executions: programs that may be run.
        seed: of the choice of problems and of prompts to go on from.
    """

    run: Callable[[str, Sequence[Example]], Sequence[Trial]]
    reflect: Callable[[str], str]
    is_too_long: Callable[[str], bool]
    num_executions: int
    seed: int

    def find(
        self, given: str, *, train: Sequence[Example], validation: Sequence[Example]
    ) -> FoundPrompt:
        """Return the best prompt; no more programs are run than are allowed."""
        gepa = import_gepa()
        per_round = 2 * _MINIBATCH_SIZE + len(validation)
        least = len(validation) + per_round
        if self.num_executions < least:
            raise ConfigError(
                "GEPA has too few executions to try another prompt",
                got=self.num_executions,
                expected=f"at least {least:,}: the given prompt on {len(validation):,} validation "
                f"problems, and a round ({per_round:,})",
                fix="lower gepa.num_validation, or set gepa.num_executions",
            )
        adapter = _Adapter(self, given)
        found = gepa.optimize(
            seed_candidate={_PROMPT: given},
            trainset=list(train),
            valset=list(validation),
            adapter=adapter,
            reflection_minibatch_size=_MINIBATCH_SIZE,
            stop_callbacks=lambda state: (
                adapter.failure is not None
                or state.total_num_evals + per_round > self.num_executions
            ),
            logger=_Silent(),
            track_best_outputs=False,
            seed=self.seed,
        )
        if adapter.failure is not None:
            raise adapter.failure
        scores = found.val_aggregate_scores
        return FoundPrompt(
            prompt=found.candidates[found.best_idx][_PROMPT],
            score=scores[found.best_idx],
            given_score=scores[0],
            num_executions=found.total_metric_calls,
            num_prompts=len(found.candidates),
            refused=dict(adapter.refused),
        )


def import_gepa() -> ModuleType:
    """Return the library."""
    try:
        import gepa
    except ImportError as error:
        raise ConfigError(f"optimising the prompt needs gepa ({error})", fix=INSTALL) from error
    return gepa


def explain_refusal(given: str, proposed: str) -> str:
    """Return why a prompt cannot stand in for the given one, as a word; empty if it can.

    What is filled in must be what was filled in before: a template may compute, and this one is
    written by a model.
    """
    before, after = _list_tags(given), _list_tags(proposed)
    if before - after:
        return "lost_place"
    if after - before:
        return "new_place"
    return "no_template" if find_place_problem(proposed, needed={"problem"}, more=PLACES) else ""


def _list_tags(template: str) -> set[str]:
    """Return what a template has in braces, without white space."""
    return {"".join(tag.split()) for tag in _TAG.findall(template)}


class _Adapter:
    """What ``gepa`` asks: to run programs under a prompt, to show what came of it, to rewrite.

    ``gepa`` goes on after an error of the model that reflects, with the executions spent; here the
    first one ends the search.
    """

    def __init__(self, search: PromptSearch, given: str) -> None:
        self.failure: Exception | None = None
        self.refused: Counter[str] = Counter()
        self._search = search
        self._given = given
        self._known = {given}

    def evaluate(
        self, batch: list[Example], candidate: dict[str, str], capture_traces: bool = False
    ) -> Any:
        """Run programs under a prompt."""
        from gepa.core.adapter import EvaluationBatch

        del capture_traces
        trials = self._search.run(candidate[_PROMPT], batch)
        return EvaluationBatch(
            outputs=[one.program for one in trials],
            scores=[one.reward for one in trials],
            trajectories=list(zip(batch, trials, strict=True)),
        )

    def make_reflective_dataset(
        self, candidate: dict[str, str], eval_batch: Any, components_to_update: list[str]
    ) -> dict[str, list[dict[str, str]]]:
        """Return what the model reads about: problems, programs and what came of them."""
        del candidate, components_to_update
        return {
            _PROMPT: [
                {
                    "Problem": read_problem(example).problem,
                    "What the assistant wrote": trial.program,
                    "What came of it": f"Reward {trial.reward:g} of 1. {trial.explanation}",
                }
                for example, trial in eval_batch.trajectories
            ]
        }

    def propose_new_texts(
        self,
        candidate: dict[str, str],
        reflective_dataset: Mapping[str, Sequence[Mapping[str, Any]]],
        components_to_update: list[str],
    ) -> dict[str, str]:
        """Return another prompt; nothing if the one that the model wrote is refused."""
        del components_to_update
        from gepa.strategies.instruction_proposal import InstructionProposalSignature as Proposal

        places = ", ".join(sorted(set(_TAG.findall(self._given))))
        asked = Proposal.prompt_renderer(
            {
                "current_instruction_doc": candidate[_PROMPT],
                "dataset_with_feedback": reflective_dataset[_PROMPT],
                "prompt_template": _ASK.replace("PLACES", places),
            }
        )
        try:
            said = self._search.reflect(str(asked))
        except Exception as error:  # noqa: BLE001 (gepa would go on; it is raised when it ends)
            self.failure = error
            return {}
        proposed = Proposal.output_extractor(said.strip())["new_instruction"]
        why = self._explain_refusal(proposed)
        if why:
            self.refused[why] += 1
            return {}
        self._known.add(proposed)
        return {_PROMPT: proposed}

    def _explain_refusal(self, proposed: str) -> str:
        if proposed in self._known:
            return "unchanged"
        why = explain_refusal(self._given, proposed)
        return why or ("too_long" if self._search.is_too_long(proposed) else "")


class _Silent:
    def log(self, message: str) -> None:
        """Say nothing: what was tried is in the step's files."""
