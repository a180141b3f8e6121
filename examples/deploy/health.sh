#!/bin/sh
# health.sh URL [ROW]: exits with 0 if the server takes requests and, given a row as JSON, answers it.
# GROUPWISE_TOKEN is sent if it is set.
set -eu

[ $# -ge 1 ] || { echo "usage: $0 URL [ROW]" >&2; exit 2; }
curl -fsS --max-time 5 "$1/readyz" >/dev/null
[ $# -ge 2 ] || exit 0
curl -fsS --max-time 120 -H "Authorization: Bearer ${GROUPWISE_TOKEN:-}" --json "{\"row\": $2}" \
    "$1/v1/predict"
