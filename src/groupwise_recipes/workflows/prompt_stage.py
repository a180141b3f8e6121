"""The stage ``optimise_prompt``: GEPA finds a prompt, which then answers the test as a rival."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from textwrap import indent
from typing import Any

import yaml
from pydantic import TypeAdapter

from groupwise.core import (
    Completion,
    Example,
    append_jsonl,
    derive_seed,
    digest_json,
    read_json,
    read_jsonl,
    write_json,
    write_text,
)
from groupwise.data.examples import read_examples
from groupwise.evaluation.predictions import Prediction, RunPolicy
from groupwise.inference.opening import open_model
from groupwise.models.base_model import open_token_counter
from groupwise.run.asking import ask_policy, make_ask, open_policy, predict_each
from groupwise.run.steps import StepContext
from groupwise.run.task import Ask, Task
from groupwise_recipes.workflows.measuring import GEPA, OPTIMISE_PROMPT, refuse_faults
from groupwise_recipes.workflows.problems import ask_about_problem
from groupwise_recipes.workflows.prompt_search import FoundPrompt, PromptSearch, Trial, import_gepa
from groupwise_recipes.workflows.reflecting import Reflector
from groupwise_recipes.workflows.rewards import Success, make_success, score_pairs
from groupwise_recipes.workflows.scoring import ProgramScorer, read_problem

PROMPT_FILE = "prompt.yaml"
"""The prompt that was found, to be copied into a config."""
_SEARCH = "search.json"
_FOUND = TypeAdapter(FoundPrompt)


class Trials:
    """Runs a policy's programs under prompts; what came of each is kept in a file.

    Args:
        ask: the policy.
        reward: of programs.
        write: returns what the policy is asked about an example's problem under a prompt.
        path: of the file.
    """

    def __init__(
        self, ask: Ask, reward: Success, write: Callable[[str, Example], Example], *, path: Path
    ) -> None:
        self._ask = ask
        self._reward = reward
        self._write = write
        self._path = path
        rows = read_jsonl(path) if path.exists() else []
        self._known = {
            (str(row["prompt"]), str(row["id"])): Trial(
                row["program"], row["reward"], row["explanation"]
            )
            for row in rows
        }

    def __call__(self, prompt: str, examples: Sequence[Example]) -> list[Trial]:
        """Return what came of a prompt on problems, in order."""
        key = digest_json(prompt)
        wanted = {one.id: one for one in examples if (key, one.id) not in self._known}
        if wanted:
            self._run(prompt, list(wanted.values()))
        return [self._known[key, one.id] for one in examples]

    def _run(self, prompt: str, examples: Sequence[Example]) -> None:
        key = digest_json(prompt)
        asked = [self._write(prompt, one) for one in examples]
        texts = [Completion(text) for text in self._ask(asked)]
        refuse_faults(score_pairs(self._reward.scorer, asked, texts))
        scores = self._reward.score_batch(asked, texts)
        for example, text, score in zip(examples, texts, scores, strict=True):
            assert score.value is not None
            self._known[key, example.id] = Trial(text.text, score.value, score.reason)
            row = {"program": text.text, "reward": score.value, "explanation": score.reason}
            append_jsonl(self._path, {"prompt": key, "id": example.id, **row})


def run_search(task: Task[Any], context: StepContext, scorer: ProgramScorer) -> None:
    """Write the best prompt for a user to copy, and how it was found."""
    import_gepa()
    config, gepa, prepared = context.config, context.config.gepa, context.output_of("prepare")
    validation = read_examples(prepared / "validation.jsonl")[: gepa.num_validation]
    spent = read_json(context.output_of("grpo") / "budget.json", dict)["num_samples"]

    def write(prompt: str, example: Example) -> Example:
        return ask_about_problem(config, read_problem(example), prompt=prompt)

    policy = open_policy(config, _find_policy(task, context, gepa.policy))
    reflector = Reflector(
        open_model(gepa.model),
        gepa,
        path=context.folder / "reflections.jsonl",
        seed=config.seed,
    )
    search = PromptSearch(
        run=Trials(
            make_ask(policy, config),
            make_success(config.reward, scorer),
            write,
            path=context.folder / "trials.jsonl",
        ),
        reflect=reflector,
        is_too_long=_limit_length(
            task, context, lambda prompt: [write(prompt, e) for e in validation]
        ),
        num_executions=gepa.num_executions or spent,
        seed=derive_seed(config.seed, GEPA),
    )
    train = read_examples(prepared / "train.jsonl")
    found = search.find(config.prompt, train=train, validation=validation)
    write_text(context.folder / PROMPT_FILE, write_prompt(found, num_validation=len(validation)))
    write_json(
        context.folder / _SEARCH,
        {
            **_FOUND.dump_python(found, mode="json"),
            "policy": gepa.policy,
            "num_validation": len(validation),
            "num_reflections": reflector.num_asked,
        },
    )
    write_json(context.folder / "budget.json", {"num_samples": found.num_executions})


def find_search(context: StepContext) -> dict[str, Any] | None:
    """Return what ``run_search`` wrote; None without such a stage, and where it is not asked.

    On other data than the run's one policy is asked, and no rival of it.
    """
    if OPTIMISE_PROMPT not in context.uses or context.folder.parent != context.run:
        return None
    return read_json(context.output_of(OPTIMISE_PROMPT) / _SEARCH, dict)


def describe_optimised(context: StepContext) -> list[RunPolicy]:
    """Return what the policy under the prompt that was found is in a report, if one was found."""
    found = find_search(context)
    if found is None:
        return []
    is_taught = found["policy"] == "sft"
    who, who_zh = ("SFT warm-up", "SFT 预热") if is_taught else ("untrained policy", "未训练的策略")
    told = RunPolicy(
        name=GEPA,
        title="GEPA",
        title_zh="GEPA",
        note=f"the {who} under the prompt that GEPA found",
        note_zh=f"{who_zh}，用 GEPA 找到的提示词",
        kind="prompted",
        step=OPTIMISE_PROMPT,
        trained_from="sft" if is_taught else "prompt",
        trained_on=("train", "validation"),
    )
    return [told]


def answer_optimised(
    task: Task[Any], context: StepContext, test: Sequence[Example]
) -> list[Prediction]:
    """Return the answers of the policy under the prompt that was found, if one was found."""
    config, found = context.config, find_search(context)
    if found is None:
        return []
    who: str = found["policy"]
    asked = [ask_about_problem(config, read_problem(e), prompt=found["prompt"]) for e in test]

    def ask(name: str) -> list[Prediction]:
        policy = open_policy(config, _find_policy(task, context, who))
        answers = ask_policy(task, policy, asked, context, name=name)
        # The same problem under another prompt is the same item.
        return [replace(a, example_id=e.id) for a, e in zip(answers, test, strict=True)]

    return predict_each([GEPA], ask, folder=context.folder)


def _find_policy(task: Task[Any], context: StepContext, name: str) -> str | Path:
    if name == "sft":
        return context.output_of("sft") / "policy"
    return task.find_base(context.config, context.run)


def _limit_length(
    task: Task[Any], context: StepContext, write_all: Callable[[str], Sequence[Example]]
) -> Callable[[str], bool]:
    """Return whether a prompt is longer than the budget, and than the given one if that is, too."""
    config = context.config
    count = open_token_counter(
        task.find_base(config, context.run), max_pixels=config.model.max_pixels
    )

    def measure(prompt: str) -> int:
        return max(count(one) for one in write_all(prompt))

    limit = max(config.data.budget.max_prompt_tokens, measure(config.prompt))
    return lambda prompt: measure(prompt) > limit


def write_prompt(found: FoundPrompt, *, num_validation: int) -> str:
    """Return YAML that says what was found, as a block where that keeps every character."""
    said = (
        f"# Found by GEPA: mean reward {found.score:.4f} on {num_validation} validation problems, "
        f"{found.given_score:.4f} under the given prompt; {found.num_executions} programs were "
        "run.\n"
    )
    block = f"prompt: |-\n{indent(found.prompt, '  ')}\n"
    try:
        is_whole = yaml.safe_load(block) == {"prompt": found.prompt}
    except yaml.YAMLError:
        is_whole = False
    if is_whole:
        return said + block
    # In double quotes every line break of Unicode is escaped; other styles fold some of them.
    return said + yaml.safe_dump({"prompt": found.prompt}, allow_unicode=True, default_style='"')
