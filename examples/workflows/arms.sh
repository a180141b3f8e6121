#!/usr/bin/env bash
# Train two arms that differ in who decides what is rewarded, rules first or a judge alone, and
# compare them on held-out problems by one truth: rules, and the judge where no rule decides.
#
#     examples/workflows/arms.sh OUT [--config NAME] [--set KEY=VALUE]...      default: --config demo
#
# OUT/comparison.html says how often rules and judge agree by type of problem; the same command
# goes on after any end. More than one seed says more: add --grid seed=0,1,2.
set -euo pipefail

out=${1:?give a folder}
shift
[[ " $* " == *" --config "* ]] || set -- --config demo "$@"
groupwise sweep workflows "$@" --set judge={} --grid reward.mode=rules_first,judge_only --out "$out"
groupwise report "$out" --factor reward.mode
groupwise report "$out" --factor reward.mode --language zh --out "$out/zh"
