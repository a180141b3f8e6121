"""GRPO that pays for a prompt once per group: the page of invariants.

*What is exact.* Every lever keeps the mathematics of stock TRL 1.16: log-probabilities within 1e-5
and gradients within 1e-4 of the parent class in float32 (tests/training/fast/test_exactness.py). On
the first batch of each new shape a shared pass is compared with plain ones (``guard``); where it
differs by more than they differ from each other, all passes are plain from then on, with a warning.
What was not compared (a family, a type of layer, an option of ``generate``) is not shared
(``support``, ``sampling.find_sampling_obstacle``). Dropout is off in every pass.

*What a round carries* (``round.Round``): which rows share a prompt, by their number; features of
each prompt's pictures where the vision tower is frozen; and the trunk, the hidden states that enter
the first block with something to train, of each prompt and of each row. Both are the same for
sampling, old policy, reference adapter and every update of the round: nothing below trains. They
are computed once, by sampling if it can. A reference that is another model shares prompts within
its own passes and nothing of the round. A batch from ``_generate_and_score_completions`` also has
``prompt_numbers`` and ``places``: the number of each row's prompt, and its place in the round.

*Which private methods of GRPOTrainer are overridden* (``trainer``), in the order of a step:

- ``_prepare_inputs``: micro-batches keep groups whole; TRL shuffles single rows. Rows with seeds
  (``make_prompt_rows``) are laid out already, so that any number of processes trains the same.
- ``_generate_and_score_completions``: starts a round, processes each picture once, sets the
  advantages of dead groups to exactly 0, which in TRL are 0 but for rounding.
- ``_tokenize_prompts``, ``_generate_single_turn``: each prompt is tokenised and read once, its keys
  are repeated; each row is drawn from its own seed (``draws``). FSDP2 gathers all weights for it.
- ``_calculate_rewards``: notes and counts dead groups. ``refill`` overrides it, ``_generate`` and
  ``_generate_and_score_completions`` again: it samples before, and hands TRL what it has chosen.
- ``_compute_loss`` is TRL's, so that every loss stays valid; it only says what micro-batch this is.
- ``_get_per_token_logps_and_entropies``: the one seam for old policy, reference and update. In an
  update without KL and entropy terms rows of dead groups are left out: their ratio counts as 1.
- ``log``: adds counts, over all processes.
- ``_save_checkpoint``, ``_load_optimizer_and_scheduler``: what stands inside a round (step,
  buffered batch, features, trunk, compared shapes) is written beside each checkpoint.

Of the instance also: ``enable_input_require_grads`` does nothing unless checkpointing is re-entrant
(``support``), the temperature in TRL's fused head may be set (``grpo_trainer``), and of TRL's
VLLMGeneration ``_iter_named_params``, ``generate`` and ``_place_features`` (``vllm``). Of
Transformers' Trainer ``sharding.ShardedTraining`` changes how FSDP2 is switched on, resumed and
warmed up.

*Several processes.* All must make as many collective calls: verdicts of the guard are agreed on,
and under FSDP2 one with fewer batches repeats its last. Seeds of rows, layouts and refills do not
depend on the number of processes.
"""
