"""What the executor will be asked in a run, by stage and by rival, before it is paid."""

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import ceil

from groupwise.core import Example
from groupwise_recipes.workflows.config import WorkflowsConfig
from groupwise_recipes.workflows.forms import list_sound_forms
from groupwise_recipes.workflows.rivals import DIRECT, NUM_VOTERS, RIVALS, SELF_CONSISTENCY

_TRIES = {"programmer": 3, "test": 3, "custom": 0.5}
"""Replies that an operator asks for at most, where that is not one; each is asked for once more if
it cannot be read, but for the plain text of ``custom``."""
_LETTERS_PER_TOKEN = 4
_OPERATOR_TOKENS = 150
"""Of an operator's own prompt, about, beside the problem."""


@dataclass(frozen=True, slots=True)
class Item:
    """A stage or a rival.

    Attributes:
        name: of it.
        programs: that run.
        requests: if every operator is asked once.
        most_requests: if every operator needs all its tries; failed requests are not counted.
        prompt_tokens: of ``requests``, about.
        completion_tokens: of ``requests``, at most: each reply as long as it may be.
        cost: of those tokens, in the currency of the server's prices.
    """

    name: str
    programs: int
    requests: int
    most_requests: int
    prompt_tokens: int
    completion_tokens: int
    cost: float

    def describe(self, *, has_price: bool) -> str:
        """Return it in words."""
        price = f"cost up to about {self.cost:,.2f}" if has_price else "no price is set"
        return (
            f"{self.programs:,} programs, about {self.requests:,} requests (at most "
            f"{self.most_requests:,}), {self.prompt_tokens:,} prompt tokens and at most "
            f"{self.completion_tokens:,} reply tokens, {price}"
        )


def count_requests(program: str, kind: str) -> tuple[int, int]:
    """Return the requests of a fixed program for a type of problem: usual, and at most."""
    (function,) = ast.parse(program).body
    assert isinstance(function, ast.AsyncFunctionDef)
    usual, most = _count(function.body, kind)
    return usual, ceil(most)


def estimate_bill(
    config: WorkflowsConfig, examples: Mapping[str, Sequence[Example]]
) -> Iterator[Item]:
    """Yield what each stage and each rival asks the executor; of the judge only if it is the same.

    A policy's programs are not known before: they are taken for the mean of the forms. Which forms
    the chosen rivals are is not known either: they are taken for the dearest.
    """
    forms, test = list_sound_forms(), examples["test"][: config.evaluation.num_items]
    tried = [
        row
        for rows in _group(examples["validation"]).values()
        for row in rows[: config.rivals.num_problems]
    ]
    yield _add_up(config, "rivals", tried, forms)
    chosen = {"direct": [DIRECT], "self_consistency": [SELF_CONSISTENCY]}
    once = [form for form in forms if form.count("await ") == 1 and "for " not in form]
    for name in RIVALS:
        num = NUM_VOTERS if name == "top_by_type" else 1
        dearest = _find_dearest(once if name == "best_operator" else forms)
        yield _add_up(config, name, test, chosen.get(name, dearest[:num]), compares=True)
    # The base, GRPO and its commonest program of each type; the warm-up if there is one.
    each = (3 if config.sft is None else 4) / len(forms)
    yield _add_up(config, "policies", test, forms, num_each=each, compares=True)
    train, grpo = examples["train"], config.grpo
    per_step = grpo.prompts_per_step * grpo.gradient_accumulation
    num_steps = grpo.epochs * len(train) // per_step
    num_steps = min(num_steps, grpo.max_steps or num_steps)
    drawn = num_steps * per_step * grpo.group_size
    looks = num_steps // grpo.heldout_every_steps + 1 if grpo.heldout_every_steps else 0
    looked = looks * min(config.evaluation.num_heldout_items, len(examples["validation"]))
    of_all = max(1, len(train) * len(forms))
    yield _add_up(config, "grpo", train, forms, num_each=(drawn + looked) / of_all)
    if config.gepa is not None:
        share = (config.gepa.num_executions or drawn) / of_all
        yield _add_up(config, "optimise_prompt", train, forms, num_each=share)


def describe_bill(
    config: WorkflowsConfig, examples: Mapping[str, Sequence[Example]]
) -> list[tuple[str, str]]:
    """Return the bill as facts, and its sum; a stub has none."""
    model = config.executor.model
    if model is None:
        return []
    server = model.server
    has_price = server is not None and bool(server.prompt_price or server.completion_price)
    items = list(estimate_bill(config, examples))
    names = ("programs", "requests", "most_requests", "prompt_tokens", "completion_tokens", "cost")
    total = Item("all", *(sum(getattr(one, name) for one in items) for name in names))
    return [(f"executor, {i.name}", i.describe(has_price=has_price)) for i in (*items, total)]


def _add_up(
    config: WorkflowsConfig,
    name: str,
    rows: Sequence[Example],
    programs: Sequence[str],
    *,
    num_each: float = 1,
    compares: bool = False,
) -> Item:
    """Return the sum over rows and programs, each run so many times.

    A judge of the executor's own model is asked once about every answer, or, by rules first,
    about answers in words alone; where rules and judge are compared, about every one.
    """
    counts = {(kind, one): count_requests(one, kind) for kind in _group(rows) for one in programs}
    usual = most = prompts = 0.0
    for row in rows:
        judged = num_each * len(programs) * _is_judged(config, row, compares=compares)
        asked = [counts[str(row.fields["problem_type"]), one] for one in programs]
        requests = num_each * sum(one for one, _ in asked) + judged
        usual += requests
        most += num_each * sum(one for _, one in asked) + judged
        letters = len(str(row.fields["problem"]["problem"]))
        prompts += requests * (letters / _LETTERS_PER_TOKEN + _OPERATOR_TOKENS)
    replies = usual * config.executor.execution.sampling.max_new_tokens
    server = config.executor.model and config.executor.model.server
    prices = (server.prompt_price, server.completion_price) if server else (0.0, 0.0)
    tokens = round(prompts), round(replies)
    cost = sum(price * count for price, count in zip(prices, tokens, strict=True)) / 1e6
    num_programs = round(num_each * len(rows) * len(programs))
    return Item(name, num_programs, round(usual), round(most), *tokens, cost)


def _is_judged(config: WorkflowsConfig, row: Example, *, compares: bool) -> bool:
    if config.judge is None or config.judge.model is not None:
        return False
    is_open = row.fields["problem_type"] == "qa" and not row.fields["problem"]["options"]
    return is_open or compares or config.reward.mode == "judge_only"


def _group(rows: Sequence[Example]) -> dict[str, list[Example]]:
    found: dict[str, list[Example]] = {}
    for row in rows:
        found.setdefault(str(row.fields["problem_type"]), []).append(row)
    return found


def _find_dearest(programs: Sequence[str]) -> list[str]:
    return sorted(programs, key=lambda one: count_requests(one, "math"), reverse=True)


def _count(body: Sequence[ast.stmt], kind: str) -> tuple[int, float]:
    """Return the requests of statements; of a branch on the entry point, those of the type."""
    usual, most = 0, 0.0
    for node in body:
        if isinstance(node, ast.For):
            times = ast.literal_eval(node.iter.args[0]) if isinstance(node.iter, ast.Call) else 1
            one, two = _count(node.body, kind)
            usual, most = usual + times * one, most + times * two
        elif isinstance(node, ast.If) and "entry_point" in ast.unparse(node.test):
            if kind == "code":
                one, two = _count(node.body, kind)
                return usual + one, most + two
        else:
            for call in (n.value for n in ast.walk(node) if isinstance(n, ast.Await)):
                name = (
                    call.func.id
                    if isinstance(call, ast.Call) and isinstance(call.func, ast.Name)
                    else ""
                )
                usual, most = usual + 1, most + 2 * _TRIES.get(name, 1)
    return usual, most
