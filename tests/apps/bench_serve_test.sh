#!/usr/bin/env bash
# The serving bench against a server with scripted delays and faults: bench_serve_test.sh PROGRAM
set -uo pipefail
program=$1
stub=$(dirname "$0")/bench_serve_stub.py
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0
unset HEADWATER_MODEL HEADWATER_API_KEY

fail() { echo "FAILED: $1"; failures=$((failures + 1)); }
# bench NAME STATUS PATTERN [VARIABLE=VALUE...] OPTION...: exit status, and a pattern in stdout + stderr
server=$stub model=none reps=1
bench() {
  local name=$1 status=$2 pattern=$3; shift 3
  local variables=()
  while [[ $1 == STUB_* ]]; do variables+=("$1"); shift; done
  env "${variables[@]}" timeout 60 "$program" bench serve --server "$server" -m "$model" --shared-prefix-tokens 64 \
    --prompt-tokens 4 --max-tokens 6 --reps "$reps" --json "$work/json" "$@" > "$work/out" 2>&1 < /dev/null
  local got=$?
  [ "$got" = "$status" ] || { fail "$name: exit $got, expected $status"; tail -5 "$work/out"; }
  grep -qE -- "$pattern" "$work/out" || { fail "$name: no '$pattern' in the output"; tail -5 "$work/out"; }
}
# check NAME: Python on standard input reads the JSON lines as `levels` and `summary`
check() {
  { echo 'import json, sys
lines = [json.loads(line) for line in open(sys.argv[1])]
levels, summary = lines[:-1], lines[-1]
assert summary["summary"] is True and not any("summary" in level for level in levels)'; cat; } > "$work/check.py"
  python3 "$work/check.py" "$work/json" || fail "$1"
}

reps=3 bench "two arms" 0 "auto / off, 2 at once: tokens/s" --arms auto,off --concurrency 1,2
check "lines of two arms" << 'PYTHON'
assert [(l["concurrency"], l["repetition"], l["arm"]) for l in levels] == [
    (c, r, arm) for c in (1, 2) for r in (1, 2, 3) for arm in ("auto", "off")], levels
for level in levels:
    assert (level["requests"], level["completed"], level["errors"]) == (4 * level["concurrency"],) * 2 + (0,), level
    assert level["prompt_tokens"] == 68 * level["requests"] and level["cached_tokens"] == 16 * level["requests"], level
    assert level["output_tokens"] == 6 * level["requests"], level
    # At least what the script says; the upper bounds are for a machine that is busy with other tests.
    assert 40 <= level["ttft_ms"]["p50"] <= 400 and 3.5 <= level["itl_ms"]["p50"] <= 100, level
    assert 4 <= level["tpot_ms"]["mean"] <= 100, level
    for name in ("ttft_ms", "itl_ms", "tpot_ms"):
        assert set(level[name]) == {"mean", "p50", "p90", "p99"}, level
        assert level[name]["p50"] <= level[name]["p90"] <= level[name]["p99"], level
    paths = level["path_deltas"]
    assert sum(paths.values()) == level["output_tokens"], level
    assert (paths["shared"] > 0) == (level["arm"] == "auto" and level["concurrency"] > 1), level
    assert ("note" in level) == (paths["shared"] == 0), level
    assert level["prefix_cache_hits"] == 16 * level["requests"], level
assert summary["texts_equal"] is True, summary
assert [ratio["concurrency"] for ratio in summary["ratios"]] == [1, 2]
for ratio in summary["ratios"]:
    spread = ratio["output_tokens_per_s"]
    assert 0 < spread["min"] <= spread["median"] <= spread["max"], ratio
PYTHON
grep -q "NOTE: no shared-prefix step in this level" "$work/out" || fail "no NOTE where nothing was shared"

bench "a mislabelled arm" 1 "the arm 'off' took [0-9]+ shared-prefix steps" STUB_SHARED=1 --arms auto,off --concurrency 2
bench "different texts" 1 "texts of the arms differ in 8 of 8 answers" STUB_TEXT=arm --arms auto,off --concurrency 2
bench "a failing server" 1 "did not answer the warm-up: 500 something broke" STUB_FAIL=500 --arms auto
bench "failed requests" 1 "8 of 8 requests failed; the first: 500 something broke" STUB_FAIL=500 --arms auto --warm-up 0 --concurrency 2
check "errors by status" <<< 'assert levels[0]["errors"] == 8 and levels[0]["errors_by_status"] == {"500": 8}, levels'
bench "connections that end early" 1 "8 of 8 requests failed; the first: closed" STUB_FAIL=drop --arms auto --warm-up 0 --concurrency 2
bench "connections that are not kept" 0 "8 of 8 requests" STUB_CLOSE=1 --arms auto --concurrency 2
bench "an error in the stream" 1 "the first: error event the device is lost" STUB_FAIL=event --arms auto --warm-up 0 --concurrency 2

bench "overload" 0 "rejected with 429: [0-9]+, [0-9]+ of them with Retry-After" STUB_CAPACITY=2 --arms auto --concurrency 8 --warm-up 1
check "rejections" << 'PYTHON'
[level] = levels
assert level["rejected"] > 0 and level["retry_after"] == level["rejected"] and level["errors"] == 0, level
assert level["completed"] + level["rejected"] == level["requests"] == 32, level
assert level["completed"] >= 2 and 0 < level["rejected_ms"]["p50"] < level["ttft_ms"]["p50"], level
PYTHON
bench "nothing but rejections" 1 "all 4 requests were rejected" STUB_CAPACITY=0 --arms auto --concurrency 1 --warm-up 0
bench "an open loop" 0 "100 requests/s arriving" --arms auto --request-rate 100 --requests 30
check "arrivals" << 'PYTHON'
[level] = levels
assert (level["request_rate"], level["completed"], level["concurrency"]) == (100, 30, 0), level
assert 0.15 < level["seconds"] < 15 and level["path_deltas"]["shared"] > 0, level
PYTHON
bench "clients that vanish" 0 "clients that vanished: [0-9]+" --arms auto --concurrency 8 --cancel-fraction 0.5 --slow-readers 3
check "vanished" << 'PYTHON'
[level] = levels
assert 5 < level["vanished"] < 27 and level["completed"] + level["vanished"] == 32 and level["errors"] == 0, level
PYTHON

bench "chat" 0 "2.00 tokens each by the server's /tokenize" --arms auto --endpoint chat --concurrency 1
check "sized prompts" <<< 'assert levels[0]["prompt_tokens"] == 4 * 68, levels'
bench "chat without /tokenize" 0 "by estimate" STUB_TOKENIZE=0 --arms auto --endpoint chat --concurrency 1

"$stub" > "$work/stub" & stub_pid=$!
for _ in $(seq 100); do [ -s "$work/stub" ] && break; sleep 0.1; done
url=$(sed 's/listening on //' "$work/stub")
timeout 60 "$program" bench serve --url "$url/v1" --metrics --concurrency 2 --reps 1 --max-tokens 4 --json - > "$work/json" 2> "$work/out" ||
  { fail "a URL"; cat "$work/out"; }
check "JSON alone on standard output" <<< 'assert levels[0]["arm"] == "url" and levels[0]["path_deltas"]["shared"] > 0, levels'
model=other bench "the wrong model" 1 "the first: 404 the model does not exist" --url "$url" --concurrency 1 --warm-up 0
kill "$stub_pid"; wait "$stub_pid" 2> /dev/null
bench "nobody listens" 1 "Connection refused" --url "$url" --concurrency 1 --warm-up 0
bench "neither URL nor arms" 2 "--url URL or --arms" --concurrency 1
bench "an unknown arm" 2 "sometimes" --arms sometimes
bench "TLS" 2 "only http" --url https://127.0.0.1:1
server=/bin/false bench "a server that does not start" 1 "ended before it was ready" --arms auto

# A bench that is killed takes its server with it.
"$program" bench serve --server "$stub" -m none --arms auto --requests 100000 --concurrency 1 > "$work/out" 2>&1 &
bench_pid=$!
for _ in $(seq 100); do server_pid=$(pgrep -P "$bench_pid") && break; sleep 0.1; done
kill -9 "$bench_pid"; wait "$bench_pid" 2> /dev/null
for _ in $(seq 50); do kill -0 "$server_pid" 2> /dev/null || break; sleep 0.1; done
kill -0 "$server_pid" 2> /dev/null && fail "the server outlived the bench"

[ "$failures" = 0 ] && echo "bench serve: all passed"
exit "$failures"
