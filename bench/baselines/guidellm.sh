#!/usr/bin/env bash
# guidellm (PyPI), a load generator that knows nothing of us, drives 64 chats behind one prompt of about 1,600 tokens,
# 8 at once, against a server of the default model: bench/baselines/guidellm.sh
# Prints its report and the server's counters; fails when a request did. Installs guidellm 0.8.1 into build/guidellm (6 GB, for it brings torch).
set -euo pipefail
cd "$(dirname "$0")/../.."
port=${PORT:-8130}
[ -x build/guidellm/bin/guidellm ] || { python3 -m venv build/guidellm && build/guidellm/bin/pip install --quiet guidellm==0.8.1; }
work=$(mktemp -d)
build/release/headwater serve --port "$port" --kv-cache-memory 1G > "$work/listening" &
server=$!
trap 'kill $server; rm -rf "$work"' EXIT
until curl -sf "localhost:$port/health" > /dev/null; do sleep 0.1; done
python3 - "$work/prompts.jsonl" << 'PYTHON'
import json, random, sys
random.seed(3)
words = "river stone market engine garden winter signal copper harbor letter mountain silver paper window bridge forest".split()
notes = "You are a careful assistant. Use these notes. " + " ".join(random.choice(words) for _ in range(1600))
with open(sys.argv[1], "w") as file:
    for i in range(64):
        prompt = f"{notes} Question {i}: what do the notes say about the {random.choice(words)}?"
        file.write(json.dumps({"prompt": prompt, "output_tokens_count": 64}) + "\n")
PYTHON
HF_HUB_OFFLINE=1 build/guidellm/bin/guidellm run \
  --backend "kind=openai_http,target=http://127.0.0.1:$port,request_format=/v1/chat/completions" \
  --profile kind=concurrent,streams=8 --constraint kind=max_requests,count=64 \
  --data "kind=json_file,path=$work/prompts.jsonl" --output "kind=json,path=$work/report.json" --disable-console-interactive
curl -s "localhost:$port/metrics" > "$work/metrics"
grep -E '^(headwater:attention_steps_total|vllm:prefix_cache_(hits|queries)_total|vllm:request_success_total)' "$work/metrics"
python3 - "$work/report.json" << 'PYTHON'
import json, sys
counts = json.load(open(sys.argv[1]))["benchmarks"][0]["metrics"]["request_totals"]
assert counts["successful"] == 64 and counts["errored"] == 0, counts
PYTHON
