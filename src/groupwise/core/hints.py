"""Did you mean: what to say of a name that is not known."""

import difflib
from collections.abc import Iterable

# Names of settings here, and what other trainers and servers call them.
_OTHER_NAMES: dict[str, tuple[str, ...]] = {
    "alpha": ("lora_alpha",),
    "answer": ("label", "label_column", "answer_column", "ground_truth", "reference"),
    "allow_longer": ("allow_rejecting",),
    "base": ("model", "model_name", "model_name_or_path", "model_path"),
    "batch_size": (
        *("per_device_train_batch_size", "train_batch_size", "micro_batch_size"),
        *("per_device_eval_batch_size", "eval_batch_size"),
    ),
    "beta": ("kl_beta", "kl_coef", "kl_loss_coef", "init_kl_coef"),
    "clip_high": ("epsilon_high", "clip_ratio_high", "eps_clip_high"),
    "clip_low": ("epsilon", "clip_ratio", "clip_ratio_low", "clip_range", "eps_clip"),
    "dtype": ("torch_dtype", "bf16", "fp16", "precision"),
    "entropy_bonus": ("entropy_coef", "entropy_coeff"),
    "cluster": ("group", "group_column", "group_by"),
    "epochs": ("num_train_epochs", "num_epochs", "total_epochs"),
    "files": ("data_files", "train_file", "train_files", "dataset", "dataset_path"),
    "gpu_memory_share": ("gpu_memory_utilization", "vllm_gpu_memory_utilization"),
    "gradient_accumulation": ("gradient_accumulation_steps",),
    "group_size": ("num_generations", "rollout_n", "n_samples_per_prompt"),
    "heldout_every_steps": ("eval_steps", "test_freq"),
    "hub": ("dataset_name", "dataset_id"),
    "label_smoothing": ("label_smoothing_factor",),
    "learning_rate": ("lr",),
    "log_every_steps": ("logging_steps",),
    "loss": ("loss_type", "loss_agg_mode"),
    "max_grad_norm": ("grad_clip", "gradient_clipping", "clip_grad"),
    "max_model_length": ("max_model_len", "vllm_max_model_length"),
    "max_new_tokens": ("max_completion_length", "max_response_length", "max_tokens"),
    "max_prompt_tokens": ("max_prompt_length", "max_length"),
    "modules": ("target_modules", "lora_target_modules"),
    "num_iterations": ("ppo_epochs", "mu"),
    "max_rows": ("max_train_samples", "max_samples"),
    "patience": ("early_stopping_patience", "early_stopping"),
    "pictures": ("images", "image", "image_column"),
    "prompt": ("question", "query", "prompt_column", "text_column"),
    "prompts_per_step": ("per_device_train_batch_size", "train_batch_size", "rollout_batch_size"),
    "rank": ("r", "lora_r", "lora_rank"),
    "rewards": ("reward_funcs", "reward_functions", "reward_weights"),
    "save_every_steps": ("save_steps", "save_freq"),
    "scheduler": ("lr_scheduler_type", "lr_scheduler"),
    "select": ("load_best_model_at_end",),
    "system": ("system_prompt", "system_message"),
    "target": ("completion", "response", "chosen"),
    "tensor_parallel_size": ("vllm_tensor_parallel_size",),
    "warmup_share": ("warmup_ratio", "lr_warmup_steps_ratio"),
}


def is_called(setting: str, name: str) -> bool:
    """Return whether ``name`` is that of a setting, here or in other trainers and servers."""
    return name == setting or name in _OTHER_NAMES.get(setting, ())


def find_nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that was probably meant, or None if none is like it.

    A setting is also found by what other trainers and servers call it.
    """
    names = list(known)
    meant = [one for one in names if is_called(one, name)]
    near = meant or difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    return near[0] if near else None


def suggest_name(name: str, known: Iterable[str]) -> str:
    """Return ``; did you mean 'NEAREST'?``, or nothing if no known name is like it."""
    near = find_nearest(name, known)
    return f"; did you mean {near!r}?" if near else ""


def describe_unknown(what: str, name: str, known: Iterable[str]) -> str:
    """Return ``there is no WHAT 'NAME'; did you mean 'NEAREST'? (there are: …)``."""
    names = list(known)
    there_are = ", ".join(names) or "none"
    return f"there is no {what} {name!r}{suggest_name(name, names)} (there are: {there_are})"
