#!/usr/bin/env bash
# Serve the executor of workflows with vLLM on loopback, until the process that started this ends.
#
#     examples/workflows/executor.sh MODEL [PORT] [vllm options]        default port: 8002
#
# Settings: EXECUTOR_NAME (default gpt-oss-120b), the name that the config says under
# executor.model.server.model; CUDA_VISIBLE_DEVICES (such as 1,2), the GPUs that it may take: the
# model is split over them; and those of examples/vllm/serve.sh, which does the work.
set -euo pipefail

if [ $# -eq 0 ]; then
    echo "error: no model; expected $0 MODEL [PORT] [vllm options]" >&2
    exit 2
fi
model=$1
port=8002
shift
if [[ ${1:-} =~ ^[0-9]+$ ]]; then
    port=$1
    shift
fi
options=(--served-model-name "${EXECUTOR_NAME:-gpt-oss-120b}")
gpus=${CUDA_VISIBLE_DEVICES:-}
if [[ $gpus == *,* ]]; then
    commas=${gpus//[^,]/}
    options+=(--tensor-parallel-size $((${#commas} + 1)))
fi
# A proxy of the machine is not asked for what is on the machine.
export no_proxy="127.0.0.1,localhost${no_proxy:+,$no_proxy}"
export NO_PROXY=$no_proxy
exec "$(dirname "$0")/../vllm/serve.sh" "$model" "$port" "${options[@]}" "$@"
