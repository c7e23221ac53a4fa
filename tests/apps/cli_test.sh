#!/usr/bin/env bash
# The commands as a user types them: cli_test.sh PROGRAM
set -uo pipefail
program=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0
export HEADWATER_COSTS=none  # not what this user has measured

fail() { echo "FAILED: $1"; failures=$((failures + 1)); }
# expect NAME STATUS PATTERN COMMAND...: exit status, and a pattern in stdout + stderr
expect() {
  local name=$1 status=$2 pattern=$3; shift 3
  "$@" > "$work/out" 2>&1 < /dev/null
  local got=$?
  [ "$got" = "$status" ] || { fail "$name: exit $got, expected $status"; tail -5 "$work/out"; }
  grep -qE -- "$pattern" "$work/out" || { fail "$name: no '$pattern' in the output"; tail -5 "$work/out"; }
}

for command in "" serve "bench serve" demo generate chat inspect quantize "bench attention" "bench plan" "bench step" "bench merge" "bench compare" tune; do
  # shellcheck disable=SC2086
  expect "help of '$command'" 0 "Usage|--help" "$program" $command --help
  [ "$(wc -l < "$work/out")" -le 48 ] || fail "help of '$command' is $(wc -l < "$work/out") lines; a screen is 48"
done

model=models/SmolLM2-135M-Instruct.Q4_1.gguf
expect "version" 0 "^[0-9]+\.[0-9]+" "$program" --version
expect "no command" 2 "needs a command: serve, " "$program"
expect "a command with a slip" 2 "headwater: .*did you mean serve" "$program" sevre
expect "a command of a command with a slip" 2 "did you mean attention" "$program" bench atention
expect "a flag with a slip" 2 "did you mean --max-tokens" "$program" generate --max-tokns 3 hi
expect "a prompt without quotes" 2 "quotes" "$program" generate why do rivers meander
expect "a number below its limit" 2 "not in range 1 to" "$program" generate -n -3 hi
expect "a port that is none" 2 "99999 not in range 0 to 65535" "$program" serve --port 99999
echo hello > "$work/hello.jsonl"
expect "prompts that are no JSON" 2 "--prompts-file .*hello.jsonl, line 1: not a JSON object" "$program" generate --prompts-file "$work/hello.jsonl"
expect "a folder of prompts" 2 "is a folder; give a file of JSON lines" "$program" generate --prompts-file "$work"
expect "inspect" 0 "llama.*30 layers" "$program" inspect $model
expect "inspect names the tokenizer" 0 "byte-level BPE, 49152 tokens, 48900 merges, pre-tokeniser smollm, 17 added" "$program" inspect $model
expect "inspect names the chat template" 0 "^  368 bytes" "$program" inspect $model
expect "inspect tensors" 0 "blk.29.ffn_down.weight" "$program" inspect $model --tensors
expect "inspect a missing file" 1 "nothing.gguf" "$program" inspect nothing.gguf
head -c 1000 $model > "$work/cut.gguf"
expect "inspect a cut file" 1 "headwater:" "$program" inspect "$work/cut.gguf"
expect "inspect a text file" 1 "offset 0: found .* where a GGUF file" "$program" inspect README.md
expect "inspect says what it reads" 1 "supported are GGUF files of version 3.*MXFP4" "$program" inspect README.md
mkdir "$work/folder" && echo '{' > "$work/folder/config.json"
expect "inspect a damaged folder" 1 "config.json: the JSON ends at offset 2" "$program" inspect "$work/folder"
expect "quantize without a model" 1 "has no config.json" "$program" quantize "$work" "$work/out.gguf"
touch "$work/weights"
expect "quantize over what it reads" 2 "is a file of the folder that is read" "$program" quantize "$work" "$work/weights"
expect "quantize to no name" 2 "is no name of a file" "$program" quantize "$work" ""
expect "a folder as configuration" 2 "a folder; give a YAML file" "$program" generate --config "$work" hello
expect "a share of a GPU on the CPU" 2 "use --kv-cache-memory" "$program" generate --backend cpu --gpu-memory-utilization 0.5 hello
expect "quantize to an unknown type" 2 "q8_0" "$program" quantize "$work/folder" "$work/out.gguf" --type q9

# A folder without weights: two layers and a vocabulary smaller than the tokens of bytes.
cat > "$work/folder/config.json" << 'JSON'
{"model_type": "llama", "num_hidden_layers": 2, "max_position_embeddings": 512, "hidden_size": 4096, "intermediate_size": 8192,
 "vocab_size": 100, "num_attention_heads": 32, "num_key_value_heads": 32, "rms_norm_eps": 1e-5, "tie_word_embeddings": true}
JSON
expect "random weights for few tokens" 2 "text is bytes, which are 256 tokens, and vocab_size of config.json is 100" \
  "$program" generate -m "$work/folder" --load-format dummy hi
mkfifo "$work/folder/tokenizer.json"
expect "a pipe as tokenizer" 2 "tokenizer.json' is a pipe or a device; expected a file" "$program" generate -m "$work/folder" --load-format dummy hi
rm "$work/folder/tokenizer.json"
echo '{"version": "1.0", "model": {"type": "BPE", "vocab": {"a": 0}, "merges": ["\u001b"]}}' > "$work/folder/tokenizer.json"
expect "inspect a folder with a wrong tokenizer and no weights" 1 'merge 0 is "\\x1b"; it needs two tokens' "$program" inspect "$work/folder"
grep -q "has neither model.safetensors" "$work/out" || fail "inspect says nothing of the missing weights"

kv=(--kv-cache-memory 100M)
expect "generate" 0 "River" "$program" generate "${kv[@]}" -n 8 --raw "The river that runs through the old town is called"
expect "generate through the twin of a flag" 2 "HEADWATER_SHARED_PREFIX|sometimes" env HEADWATER_SHARED_PREFIX=sometimes "$program" generate hi
expect "generate with a bad size" 2 "lots" "$program" generate --kv-cache-memory lots hi
expect "generate with an unknown back end" 2 "tpu" "$program" generate --backend tpu hi
expect "generate with cuda" 1 "without CUDA" "$program" generate --backend cuda hi
expect "generate without a prompt" 2 "prompt" "$program" generate

cat > "$work/prompts.jsonl" << 'LINES'
{"id": "a", "messages": [{"role": "user", "content": "Name a river."}], "max_tokens": 8}
{"id": "b", "prompt": "The river Rhine", "max_tokens": 8, "temperature": 0.8, "seed": 7, "n": 2}

{"id": "c", "prompt": [504, 2010], "max_tokens": 4, "logprobs": true, "top_logprobs": 2}
LINES
expect "a batch" 0 "" "$program" generate "${kv[@]}" --prompts-file "$work/prompts.jsonl" --json "$work/answers.jsonl"
python3 - "$work/answers.jsonl" << 'PYTHON' || fail "answers of the batch"
import json, sys
lines = [json.loads(line) for line in open(sys.argv[1])]
assert [line["id"] for line in lines] == ["a", "b", "b", "c"], lines
assert [line["choice"] for line in lines] == [0, 0, 1, 0]
assert all(set(line) >= {"prompt_tokens", "cached_tokens", "token_ids", "text", "finish_reason"} for line in lines)
assert all(len(line["token_ids"]) <= 8 for line in lines)
assert len(lines[3]["logprobs"]) == len(lines[3]["token_ids"]) and len(lines[3]["logprobs"][0]["top"]) == 2
assert lines[1]["token_ids"] != lines[2]["token_ids"], "choices of one request are the same"
PYTHON
cp "$work/answers.jsonl" "$work/first.jsonl"
"$program" generate "${kv[@]}" --prompts-file "$work/prompts.jsonl" --json "$work/answers.jsonl" --shared-prefix off > /dev/null 2>&1
cmp -s "$work/first.jsonl" "$work/answers.jsonl" || fail "a batch run twice gives two answers"
for line in '{"prompt": "x", "temperature": 3}' '{"prompt": "x", "max_tokens": "many"}' '{"prompt": []}' '{"prompt": [99999999]}' \
            '{"prompt": "x", "messages": []}' '{"messages": [{"role": "user"}]}' 'not json' '{"prompt": "x", "stop": [""]}' \
            '{"prompt": "x", "n": 0}' '{"prompt": "x", "logit_bias": {"-1": 3}}'; do
  echo "$line" > "$work/bad.jsonl"
  expect "bad line $line" 2 "line 1" "$program" generate "${kv[@]}" --prompts-file "$work/bad.jsonl"
done

echo '{"prompt": "x", "max_tokns": 3}' > "$work/bad.jsonl"
expect "a prompt's key with a slip" 2 "line 1: .max_tokns. is no field of a prompt; those are id, .*max_tokens" "$program" generate "${kv[@]}" --prompts-file "$work/bad.jsonl"
expect "prompts without an end" 2 "--prompts-file /dev/zero: more than 268435456 bytes" "$program" generate "${kv[@]}" --prompts-file /dev/zero
expect "keys without an end" 2 "--api-key-file /dev/zero: more than 1048576 bytes" "$program" serve --api-key-file /dev/zero
expect "a configuration without an end" 2 "--config /dev/zero: more than 1048576 bytes" "$program" serve --config /dev/zero
expect "a grid without an end" 2 "--grid-file /dev/zero: more than 1048576 bytes" "$program" bench attention --grid-file /dev/zero
expect "a chat template without an end" 1 "--chat-template /dev/zero: .*at most 1048576 are read" "$program" generate "${kv[@]}" --chat-template /dev/zero hi
expect "a prompt that cannot fit" 2 "[0-9]+.*[0-9]+" "$program" generate --kv-cache-memory 4M -n 4000 hi
printf 'My name is Ada.\nWhat is my name?\n' > "$work/chat.txt"
"$program" chat "${kv[@]}" -n 24 < "$work/chat.txt" > "$work/out" 2>&1 || fail "chat"
[ "$(grep -c 'from the prefix cache' "$work/out")" = 2 ] || fail "chat: two turns"
grep -qE ', [1-9][0-9]* from the prefix cache' "$work/out" || fail "chat: the second turn re-uses nothing"

cell=(--batch 4 --shared 512 --tail 64 --reps 3)
expect "bench attention" 0 "1 cells, 0 skipped" "$program" bench attention "${cell[@]}"
expect "bench attention, all arms" 0 '"arm":"always"' "$program" bench attention "${cell[@]}" --always --json -
expect "bench attention, an injected fault" 1 "differ" "$program" bench attention "${cell[@]}" --inject-fault
expect "bench attention, a mislabelled arm" 1 "the arm 'off' took" "$program" bench attention "${cell[@]}" --mislabel
expect "bench attention, an unknown grid" 2 "small-models" "$program" bench attention --grid nothing
expect "bench step without a prompt" 2 "shared-tokens 0" "$program" bench step --shared-tokens 0 --prompt-tokens 0
expect "bench step, an unknown arm" 2 "sometimes" "$program" bench step --arms auto,sometimes

expect "tune" 0 "costs of [0-9]+ targets" "$program" tune --seconds 1 --output "$work/costs.json"
expect "tune once more" 0 "costs of this machine, measured 20" "$program" tune --once --output "$work/costs.json"
cp "$work/costs.json" "$work/one.json"
expect "tune for other threads" 0 "costs of [0-9]+ targets" "$program" tune --once --seconds 1 --threads 1 --output "$work/one.json"
expect "tune into what is no file" 2 "is not replaced.*--output" "$program" tune --seconds 0.5 --output /dev/null
expect "bench attention with measured costs" 0 "costs from $work/costs.json, 20.*peaks" "$program" bench attention "${cell[@]}" --costs "$work/costs.json"
expect "bench attention with built-in costs" 0 "costs built in" "$program" bench attention "${cell[@]}"
expect "the summary" 0 '"predicted_error_median":.*"costs":"from ' "$program" bench attention "${cell[@]}" --costs "$work/costs.json" --json -
head -c 300 "$work/costs.json" > "$work/damaged.json"
expect "a damaged costs file" 0 "costs in $work/damaged.json are not used: .*headwater tune" "$program" bench attention "${cell[@]}" --costs "$work/damaged.json"
expect "generate with a damaged costs file" 0 "costs built in" "$program" generate "${kv[@]}" -n 2 --raw hi --costs "$work/damaged.json"
export XDG_CACHE_HOME=$work/cache
expect "generate without a costs file" 0 "costs built in" "$program" generate "${kv[@]}" -n 2 --raw hi --costs auto
mkdir -p "$work/cache/headwater" && cp "$work/costs.json" "$work/cache/headwater/"
expect "generate with the user's costs file" 0 "costs from $work/cache/headwater/costs.json, 20" "$program" generate "${kv[@]}" -n 2 --raw hi --costs auto
unset XDG_CACHE_HOME
expect "tune of a back end without costs" 1 "no costs" "$program" tune --backend reference --dry-run
expect "tune into a folder that cannot be" 1 "--output" "$program" tune --seconds 0.5 --output README.md/costs.json
expect "bench plan" 0 "us_from_scratch" "$program" bench plan --json -

[ "$failures" = 0 ] && echo "cli: all passed"
exit "$failures"
