#!/usr/bin/env bash
# Stage A alone: a line of text about every photo, one JSONL file per mission.
#
#   examples/group_qc/summarize.sh PHOTOS RUN [CONFIG] [--set a.b=value ...]
#
# PHOTOS  folder of <mission>/{审核通过|审核不通过}/<group>/*.jpg
# RUN     run folder; start it again after any end, it goes on after the finished groups
# CONFIG  qwen2.5-vl-7b if not given
#
# The summaries are in RUN/summarize/<mission>_stage_a.jsonl. To go on with Stage B:
#   groupwise run group_qc --resume --out RUN  (with the same settings)
set -euo pipefail

if [[ $# -lt 2 ]]; then
  sed -n '2,12s/^# \{0,1\}//p' "$0" >&2
  exit 2
fi
photos=$1
run=$2
shift 2
config=qwen2.5-vl-7b
if [[ $# -gt 0 && $1 != --* ]]; then
  config=$1
  shift
fi
exec "${GROUPWISE:-groupwise}" run group_qc --config "$config" --out "$run" --until summarize \
  --set data.root="$photos" "$@"
