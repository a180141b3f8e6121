"""What series and alarms are called, what an alarm says and what to do about it, in two languages.

Sentences are made of the alarm's numbers only.
"""

from typing import Literal

from groupwise.evaluation.monitor.alarms import Alarm, AlarmName

Language = Literal["en", "zh"]

_SHARES = (
    "reward",
    "dead_groups",
    "invalid",
    "truncated",
    "unscorable",
    "mean_token_accuracy",
    "heldout/accuracy",
    "heldout/invalid",
)
_TITLES: dict[str, tuple[str, str]] = {
    "reward": ("Reward", "奖励"),
    "reward_std": ("Spread of reward", "奖励标准差"),
    "loss": ("Loss", "损失"),
    "kl": ("KL to the start", "与起点的 KL"),
    "entropy": ("Entropy", "熵"),
    "dead_groups": ("Dead groups", "无信号组"),
    "invalid": ("Invalid answers", "无效回答"),
    "unscorable": ("Not scored", "未能评分"),
    "truncated": ("Cut off", "被截断"),
    "completion_length": ("Answer length", "回答长度"),
    "grad_norm": ("Gradient norm", "梯度范数"),
    "learning_rate": ("Learning rate", "学习率"),
    "tokens_per_s": ("Tokens per second", "每秒 token 数"),
    "mean_token_accuracy": ("Token accuracy", "token 准确率"),
    "sampler_difference": ("Sampler difference", "采样器差异"),
    "sampler_difference_max": ("Sampler difference, max", "采样器最大差异"),
    "sampler_ratio": ("Sampler ratio", "采样器比率"),
    "heldout/accuracy": ("Held-out accuracy", "留出集准确率"),
    "heldout/invalid": ("Held-out invalid", "留出集无效率"),
}
# name: what was seen and what to do, in English and in Chinese
_ALARMS: dict[AlarmName, tuple[tuple[str, str], tuple[str, str]]] = {
    "no_gradient": (
        (
            "the gradient was exactly 0 in the last {num_rows} rows: nothing is being trained",
            "check that parameters train (trainable.txt) and that rewards differ within groups",
        ),
        (
            "最近 {num_rows} 行的梯度都恰好为 0：没有训练任何东西",
            "检查是否有可训练参数（trainable.txt），以及同组奖励是否有差别",
        ),
    ),
    "all_groups_dead": (
        (
            "all completions of a group earned the same in {now%} of the groups over the last "
            "{num_rows} rows, so they teach nothing",
            "raise the temperature or group_size, take harder or easier prompts, or stop if the "
            "reward is as high as it can be",
        ),
        (
            "最近 {num_rows} 行中 {now%} 的组内所有回答得分相同，学不到任何东西",
            "提高 temperature 或 group_size，换更难或更容易的题；若奖励已到顶则可停止",
        ),
    ),
    "reward_up_heldout_down": (
        (
            "since step {best_step} the mean reward rose from {reward_then} to {reward_now}, but "
            "held-out {subject} fell from {best} to {now}",
            "look at what earns the reward now: the policy may be exploiting it, or learning its "
            "prompts by heart; the checkpoint near the best step may be the better policy",
        ),
        (
            "自第 {best_step} 步起平均奖励从 {reward_then} 升到 {reward_now}，"
            "但留出集 {subject} 从 {best} 降到 {now}",
            "看看现在是什么在得分：策略可能在钻奖励的空子或背题；最佳步附近的检查点可能更好",
        ),
    ),
    "kl_jump": (
        (
            "KL jumped to {value} from a median of {usual} in the rows before "
            "(jumps so far: {num_jumps})",
            "lower learning_rate or max_grad_norm, or raise beta",
        ),
        (
            "KL 从之前各行的中位数 {usual} 跳到 {value}（至今 {num_jumps} 次）",
            "降低 learning_rate 或 max_grad_norm，或提高 beta",
        ),
    ),
    "entropy_collapse": (
        (
            "entropy fell from {start} to {now} while the mean reward is only {reward}: nothing "
            "new is tried any more",
            "raise entropy_bonus or the temperature, or lower learning_rate",
        ),
        (
            "熵从 {start} 降到 {now}，而平均奖励只有 {reward}：已不再尝试新的回答",
            "提高 entropy_bonus 或 temperature，或降低 learning_rate",
        ),
    ),
    "length_growth": (
        (
            "answers grew from {start} to {now} tokens",
            "see whether longer answers earn more than they should; cap max_new_tokens or add a "
            "reward part for length",
        ),
        (
            "回答从 {start} 增长到 {now} 个 token",
            "检查更长的回答是否得分过高；限制 max_new_tokens 或加一个长度奖励项",
        ),
    ),
    "truncated": (
        (
            "{now%} of the answers reach the length limit (more than {limit%})",
            "raise max_new_tokens, or teach shorter answers first",
        ),
        (
            "{now%} 的回答达到长度上限（超过 {limit%}）",
            "提高 max_new_tokens，或先教更短的回答",
        ),
    ),
    "invalid": (
        (
            "{now%} of the completions are no answer (more than {limit%}); each earns 0",
            "warm up longer, or give the format a larger weight",
        ),
        (
            "{now%} 的回答不合约定格式（超过 {limit%}），得分均为 0",
            "延长预热，或提高格式奖励的权重",
        ),
    ),
    "unscorable": (
        (
            "{now%} of the answers could not be scored (more than {limit%})",
            "see why the judge or the checker fails; what is left is another reward",
        ),
        (
            "{now%} 的回答未能评分（超过 {limit%}）",
            "查明评审或检查程序为何失败；剩下的已是另一种奖励",
        ),
    ),
    "judge_no_verdict": (
        (
            "{subject} gave no verdict on {now%} of {num_questions} questions (more than {limit%})",
            "see the causes in judge.json: time-outs, unreadable replies or refusals",
        ),
        (
            "{subject} 对 {num_questions} 个问题中的 {now%} 没有给出判定（超过 {limit%}）",
            "在 judge.json 中查看原因：超时、无法解析的回复或拒答",
        ),
    ),
    "grad_spike": (
        (
            "the gradient norm was {value}, against a median of {usual} in the rows before "
            "(spikes so far: {num_jumps})",
            "look for odd rows at that step; lower learning_rate or max_grad_norm if it repeats",
        ),
        (
            "梯度范数达到 {value}，之前各行的中位数为 {usual}（至今 {num_jumps} 次）",
            "检查该步的异常数据；若反复出现，降低 learning_rate 或 max_grad_norm",
        ),
    ),
    "loss_not_moving": (
        (
            "the loss is {now}, as at the start ({start})",
            "raise learning_rate, and check that parameters train (trainable.txt)",
        ),
        (
            "损失为 {now}，与开始时（{start}）几乎相同",
            "提高 learning_rate，并检查是否有可训练参数（trainable.txt）",
        ),
    ),
}


def title_series(key: str, language: Language = "en") -> str:
    """Return what a series is called; one that is not known keeps its key."""
    if key in _TITLES:
        return _TITLES[key][language == "zh"]
    kind, stroke, name = key.partition("/")
    if stroke and kind == "heldout":
        return f"留出集 {name}" if language == "zh" else f"Held-out {name}"
    return f"  {name}" if stroke and kind == "reward" else key


def describe_value(key: str, value: float) -> str:
    """Return a value of a series: shares in per cent, other numbers with three digits."""
    is_share = key in _SHARES or (key.startswith("reward/") and 0 <= value <= 1)
    return _format_share(value) if is_share else _format_plain(value)


def describe_alarm(alarm: Alarm, language: Language = "en") -> str:
    """Return what was seen, a clause without a final stop."""
    return _fill(_ALARMS[alarm.name][language == "zh"][0], alarm, language)


def advise(alarm: Alarm, language: Language = "en") -> str:
    """Return what to do about an alarm, a clause without a final stop."""
    return _ALARMS[alarm.name][language == "zh"][1]


def _fill(text: str, alarm: Alarm, language: Language) -> str:
    subject = alarm.subject or ("评审" if language == "zh" else "the judge")
    text = text.replace("{subject}", subject)
    for name, value in alarm.numbers.items():
        text = text.replace(f"{{{name}%}}", _format_share(value))
        text = text.replace(f"{{{name}}}", _format_plain(value))
    return text


def _format_share(value: float) -> str:
    return f"{100 * value:.1f}\u00a0%"


def _format_plain(value: float) -> str:
    return f"{value:.4g}"
