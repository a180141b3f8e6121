"""The sentences of the fairness gate, in English and Chinese, by the name of their reason.

``{key}`` is what differs, ``{cause}`` what it follows from, ``{runs}`` the runs it is about.
"""

from collections.abc import Mapping
from typing import Literal

Language = Literal["en", "zh"]
Sentences = Mapping[str, tuple[str, str]]

INTENDED: Sentences = {
    "named": ("named as what is compared", "已声明为要比较的因素"),
    "follows": (
        "follows from {cause}, which is compared: it belongs to the conclusion",
        "由所比较的 {cause} 引起，结论中应一并说明",
    ),
}

HARMLESS: Sentences = {
    "field": ("{cause}", "{cause_zh}"),
    "hardware": (
        "the machine: last digits may differ and speeds cannot be compared",
        "机器不同：数值末位可能不同，速度不可比",
    ),
    "time": ("when and how long: for information only", "时间与用时：仅供参考"),
    "command": (
        "how it was typed: what it was resolved to is compared key by key",
        "命令写法不同：已逐项比较解析后的配置",
    ),
    "same_content": (
        "where it comes from: its content is compared ({cause}) and equal",
        "来源不同：内容（{cause}）已比较且相同",
    ),
    "build": (
        "builds of one release for other machines",
        "同一版本的不同构建",
    ),
    "unused": (
        "no compared policy was trained with it, and evaluation is compared on its own",
        "所比较的策略均未用它训练，评测条件另行比较",
    ),
    "close_rate": (
        "the judge failed about as often in every run (within one point)",
        "裁判失败率相差不到一个百分点",
    ),
    "cache": ("a verdict from the cache is the verdict", "缓存中的裁决与重新裁决相同"),
}

CONFOUNDING: Sentences = {
    "unknown": (
        "not recorded by {runs}, so it cannot be checked: run that again with this version",
        "{runs} 没有记录，无法核对：请用当前版本重新运行",
    ),
    "conditions": (
        "{runs} has no evaluate/conditions.json, so data, prompts, template, decoding, parser, "
        "metrics and weights cannot be checked: run its step evaluate again",
        "{runs} 没有 evaluate/conditions.json，数据、提示、模板、解码、解析、指标和权重"
        "都无法核对：请重新运行其 evaluate 步骤",
    ),
    "policies": (
        "{runs} does not say in evaluate/policies.json how its policy was trained, so training "
        "steps and budget cannot be checked: run its step evaluate again",
        "{runs} 没有在 evaluate/policies.json 中说明策略如何训练，训练步骤和预算无法核对："
        "请重新运行其 evaluate 步骤",
    ),
    "config": (
        "set {key} to the same value in all runs, or name it with --factor",
        "请在所有运行中把 {key} 设为相同的值，或用 --factor 声明",
    ),
    "seeds": (
        "a seed alone moves the numbers: repeat with the same seed, or vary seeds in all runs "
        "alike and name seed with --factor",
        "仅种子就会改变结果：请用相同种子重做，或在所有运行中同样改变种子并用 --factor 声明",
    ),
    "recipe": ("other recipes: compare runs of one recipe", "配方不同：请比较同一配方的运行"),
    "policy": (
        "other policies: name policy with --factor if they are what is compared",
        "策略不同：若这正是要比较的，请用 --factor policy 声明",
    ),
    "lineage": (
        "other training steps: compare policies that were trained in the same steps, or name "
        "policy with --factor",
        "训练步骤不同：请比较训练步骤相同的策略，或用 --factor policy 声明",
    ),
    "data": (
        "other data in {key}: give all runs the same data, or name data with --factor",
        "{key} 数据不同：请使用相同数据，或用 --factor data 声明",
    ),
    "inputs": (
        "another file or folder behind {key}: give all runs the same",
        "{key} 的文件内容不同：请使用相同内容",
    ),
    "items": (
        "other items ({cause}): evaluate all runs on the same items and compare those",
        "评测题目不同（{cause}）：请用相同的题目评测后再比较",
    ),
    "labels": (
        "items of the same id have other labels: evaluate all runs with the same labels",
        "同一题目的标签不同：请用相同的标签评测",
    ),
    "subset": (
        "drawn from another set of items: draw them from the same",
        "题目取自不同的集合：请从同一集合中抽取",
    ),
    "prompts": (
        "other prompts in {key}: ask all runs the same items in the same words",
        "{key} 的提示不同：请用相同的题目和相同的措辞",
    ),
    "template": (
        "other chat templates: the same messages become other prompts; use the same template",
        "对话模板不同：同样的消息会变成不同的提示，请使用同一模板",
    ),
    "tokenizer": ("other tokenizers: use the same", "分词器不同：请使用同一分词器"),
    "base_weights": (
        "training starts from other weights: start all runs from the same base",
        "起始权重不同：请从同一基座开始训练",
    ),
    "decoding": (
        "answers are drawn in another way: evaluate all runs with the same {key}",
        "解码方式不同：请用相同的 {key} 评测",
    ),
    "parser": (
        "answers are read by another parser: evaluate all runs with the same {key}",
        "答案解析不同：请用相同的 {key} 评测",
    ),
    "normalizer": (
        "answers are normalised in another way: evaluate all runs again with one version",
        "归一化方式不同：请用同一版本重新评测",
    ),
    "metrics": (
        "another version of the metric {key}: evaluate the older run again",
        "指标 {key} 的版本不同：请重新评测较旧的运行",
    ),
    "judge": (
        "another judge or other counts of it ({key}): use one judge for all runs",
        "裁判不同或其统计不同（{key}）：请对所有运行使用同一裁判",
    ),
    "no_verdict_rate": (
        "the judge failed more often in one run: fix it and train that run again",
        "裁判在某个运行中失败更多：请修复后重新训练该运行",
    ),
    "budget": (
        "one run had more of {key}: give all runs the same budget, or name budget with --factor",
        "训练预算 {key} 不同：请使用相同预算，或用 --factor budget 声明",
    ),
    "resolved": (
        "the trainer resolved {key} to another value: set it, or use the same library versions",
        "训练器解析出的 {key} 不同：请显式设置，或使用相同的库版本",
    ),
    "trainable": (
        "another number of weights is trained or frozen ({key}): train the same parts",
        "可训练或冻结的参数量不同（{key}）：请训练相同的部分",
    ),
    "packages": (
        "another version of {key}: run all with the same version, or name packages with --factor",
        "{key} 的版本不同：请用同一版本运行，或用 --factor packages 声明",
    ),
    "code": (
        "another state of the code: run all from one commit, or name code with --factor if you "
        "know that the change does not matter",
        "代码版本不同：请在同一提交上运行；若确知改动无关，可用 --factor code 声明",
    ),
    "accepted": (
        "one run goes on with a known fault of its rewards: fix the fault and run it again",
        "某个运行带着已知的奖励缺陷继续：请修复后重新运行",
    ),
    "other": (
        "nothing says that {key} is harmless: make it the same in all runs, or name it with "
        "--factor",
        "无法确定 {key} 无害：请使其相同，或用 --factor 声明",
    ),
}

REMARKS: Sentences = {
    "not_varied": (
        "{key} was to be compared but is the same in all runs",
        "要比较的 {key} 在所有运行中相同",
    ),
    "same_predictions": (
        "{runs} gave the same answer to all {count} items, word for word: what differs changed "
        "nothing, or one model was evaluated twice",
        "{runs} 对全部 {count} 题的回答逐字相同：差异没有产生任何作用，或同一模型被评测了两次",
    ),
    "same_answers": (
        "{runs} gave the same label to all {count} items, in other words: the measured difference "
        "is 0 whatever differs",
        "{runs} 对全部 {count} 题给出相同的标签（措辞不同）：无论差异如何，测得的差别为 0",
    ),
    "identical": (
        "{runs} are identical: all {count} predictions word for word, and all weights; no setting "
        "differs, so this is one run and its copy, or a training that came out the same again",
        "{runs} 完全相同：全部 {count} 个预测逐字一致，权重也一致；没有任何设置不同，"
        "因此是同一运行及其副本，或重新训练得到了完全相同的结果",
    ),
    "identical_other_weights": (
        "{runs} gave all {count} predictions alike, word for word, and no setting differs; their "
        "weights are not the same",
        "{runs} 的全部 {count} 个预测逐字一致，也没有任何设置不同；但权重不同",
    ),
    "identical_answers": (
        "{runs} gave all {count} predictions alike, word for word, and no setting differs; their "
        "weights are not there to be compared",
        "{runs} 的全部 {count} 个预测逐字一致，也没有任何设置不同；权重不在，无法比较",
    ),
    "nothing_trainable": (
        "no weight was trained in the step {key} of {runs}: what comes out of it is what went in",
        "{runs} 的步骤 {key} 没有可训练的权重：输出与输入相同",
    ),
    "unmoved_weights": (
        "the weights after the step {key} of {runs} are those before it: nothing was trained",
        "{runs} 的步骤 {key} 前后权重相同：没有训练任何东西",
    ),
    "unmoved_adapter": (
        "the adapter of the step {key} of {runs} is zero: nothing was trained",
        "{runs} 的步骤 {key} 的适配器为零：没有训练任何东西",
    ),
    "same_epochs": (
        "{key} {cause} are identical in all {count} cells: nothing was trained between them",
        "{key} {cause} 在全部 {count} 格中完全相同：其间没有训练任何东西",
    ),
    "same_axis": (
        "{key} {cause} are identical in all {count} cells: this axis changed nothing there",
        "{key} {cause} 在全部 {count} 格中完全相同：该轴在此没有产生任何作用",
    ),
}

SENTENCES: Sentences = {**INTENDED, **HARMLESS, **CONFOUNDING, **REMARKS}


def write_sentence(reason: str, words: Mapping[str, str], language: Language = "en") -> str:
    """Return the sentence of a reason with its places filled."""
    return SENTENCES[reason][language == "zh"].format(**words)
