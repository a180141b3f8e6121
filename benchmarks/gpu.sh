#!/bin/sh
# A command with Groupwise on a GPU machine without network.
#
#   benchmarks/gpu.sh --pack            where there is a network: collect wheels in build/gpu-wheels
#   benchmarks/gpu.sh --all             on the GPU machine, which has Python and torch: measure
#                                       everything into build/gpu/gpu.{json,md} (see gpu.py);
#                                       --rehearse: tiny models on a CPU, to see that it runs
#   benchmarks/gpu.sh --run COMMAND...  there: one command, for example
#                                       python3 benchmarks/grpo_gpu.py --json build/grpo_gpu.json
#
# Carry the whole repository, build/gpu-wheels included. PYTHON names the interpreter, GPU_PYTHON
# the Python version on the GPU machine (3.12).
set -eu
here=$(cd "$(dirname "$0")" && pwd)
python=${PYTHON:-python3}
wheels=$here/../build/gpu-wheels

pack() {
    mkdir -p "$wheels"
    # What is compiled and large (torch, numpy, scipy, pyarrow, pandas) is the GPU machine's own.
    "$python" -m pip download --no-deps --only-binary=:all: --dest "$wheels" \
        --implementation cp --python-version "${GPU_PYTHON:-3.12}" \
        --platform manylinux_2_28_x86_64 --platform manylinux_2_17_x86_64 \
        --platform manylinux2014_x86_64 -c "$here/../constraints.txt" \
        trl peft transformers accelerate datasets multiprocess dill tokenizers \
        pydantic pydantic-core typing-inspection annotated-types rich pygments markdown-it-py mdurl \
        httpx2 httpcore2 h11 anyio idna truststore jsonschema-rs math-verify \
        latex2sympy2-extended antlr4-python3-runtime typer \
        fastapi starlette opentelemetry-api python-multipart uvicorn prefix_grouper
}

run() {
    site=$(mktemp -d)
    trap 'rm -rf "$site"' EXIT
    if ls "$wheels"/*.whl >/dev/null 2>&1; then
        "$python" -m pip install -q --no-index --no-deps --no-compile --target "$site" \
            "$wheels"/*.whl
    fi
    # Not an editable install: the recipes are entry points, which need metadata beside them.
    "$python" -m pip install -q --no-index --no-deps --no-compile --no-build-isolation --upgrade \
        --target "$site" "$here/.."
    PATH="$site/bin:$PATH" PYTHONPATH="$site${PYTHONPATH:+:$PYTHONPATH}" "$@"
}

case ${1:-} in
    --pack) pack ;;
    --all) shift; run "$python" "$here/gpu.py" "$@" ;;
    --run) shift; run "$@" ;;
    *) sed -n '2,14p' "$0" | cut -c3-; exit 2 ;;
esac
