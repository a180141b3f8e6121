#!/usr/bin/env bash
# Say whether an executor is up, offers the model under the config's name, and answers.
#
#     examples/workflows/check.sh [URL] [NAME]        default: http://127.0.0.1:8002/v1 gpt-oss-120b
#
# Exit codes: 0 it answers, 1 it does not; the reason is on stderr.
set -euo pipefail

url=${1:-http://127.0.0.1:8002/v1}
name=${2:-gpt-oss-120b}
ask() { curl --silent --show-error --noproxy 127.0.0.1,localhost --max-time 120 "$@"; }

if ! models=$(ask "$url/models"); then
    echo "error: nothing answers at $url" >&2
    exit 1
fi
if [[ ! $models =~ \"id\":\ ?\"$name\" ]]; then
    echo "error: $url offers no model $name; set EXECUTOR_NAME, or the name in the config" >&2
    echo "it offers: $models" >&2
    exit 1
fi
question='{"model": "'$name'", "max_tokens": 16, "messages": [{"role": "user", "content": "Hello"}]}'
reply=$(ask --header "Content-Type: application/json" --data "$question" "$url/chat/completions")
if [[ $reply != *'"choices"'* ]]; then
    echo "error: $name does not answer: $reply" >&2
    exit 1
fi
echo "ok: $name answers at $url"
