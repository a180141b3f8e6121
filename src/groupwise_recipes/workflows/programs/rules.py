"""What a program may do, in words for a policy's prompt."""

from typing import Literal

from groupwise_recipes.workflows.programs.language import FUNCTIONS, MODULES, PARAMETERS

_FORM = "async def workflow({})"


def describe_rules(*, assign_first: bool = True, language: Literal["en", "zh"] = "en") -> str:
    """Return the rules that ``check_program`` holds a program to, one a line."""
    forms = [_FORM.format(", ".join(PARAMETERS[:count])) for count in (1, 2, 3)]
    words = _RULES[language]
    lines = [
        words["form"].format(" / ".join(f"`{form}`" for form in forms)),
        words["await"],
        words["gather"],
        words["names"].format(", ".join(sorted(FUNCTIONS))),
        words["modules"].format(", ".join(MODULES)),
        words["not"],
        words["return"],
    ]
    if assign_first:
        lines.append(words["assign"])
    return "\n".join(f"- {line}" for line in lines)


_RULES = {
    "en": {
        "form": "Write one Python function {} that returns the answer; other functions may stand "
        "beside it or in it.",
        "await": "Call each operator with `await` and its declared arguments; do not use "
        "their names for anything else.",
        "gather": "Several calls at once: `await asyncio.gather(*[operator(...) for ...])`.",
        "names": "Of Python's functions there are: {}.",
        "modules": "Of its modules there are: {}.",
        "not": "No classes, decorators, `global`, `nonlocal`, `yield` or `async for`.",
        "return": "Return a value on every path.",
        "assign": "Assign every variable first: before a branch, a loop or `try` that may skip it.",
    },
    "zh": {
        "form": "写一个 Python 函数 {}，返回答案；它旁边或里面可以有其他函数。",
        "await": "每次调用算子都用 `await`，参数与声明一致；算子的名字不得另作他用。",
        "gather": "同时调用多个：`await asyncio.gather(*[operator(...) for ...])`。",
        "names": "可用的 Python 函数：{}。",
        "modules": "可用的模块：{}。",
        "not": "不得使用类、装饰器、`global`、`nonlocal`、`yield` 或 `async for`。",
        "return": "每条路径都要返回一个值。",
        "assign": "先给每个变量赋值：在可能跳过它的分支、循环或 `try` 之前。",
    },
}
