#!/bin/sh
# Starts a machine of a Ray cluster: `cluster.sh head`, or `cluster.sh join HEAD:PORT`.
set -eu
export RAY_USAGE_STATS_ENABLED=0
export RAY_AUTH_MODE="${RAY_AUTH_MODE:-token}"
# As the work would have without Ray, which makes its workers yield to all else.
export RAY_worker_niceness="${RAY_worker_niceness:-0}"
# Waiting threads sleep: spinning ones make a shared machine many times slower.
export OMP_WAIT_POLICY=PASSIVE
case "${1:-}" in
head) exec ray start --head --port "${PORT:-6379}" --include-dashboard=false --disable-usage-stats ;;
join) exec ray start --address "${2:?HEAD:PORT}" --disable-usage-stats ;;
*)
    echo "usage: cluster.sh head | join HEAD:PORT" >&2
    exit 2
    ;;
esac
