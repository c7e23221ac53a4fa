#!/usr/bin/env bash
# The attention bench on small cells: outcomes and outputs are checked before anything is timed, faults put in on
# purpose end it, what it cannot measure it says, and shards merge into one record: bench_attention_test.sh PROGRAM
set -uo pipefail
program=$(realpath "$1")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0
fail() { echo "FAILED: $*"; failures=$((failures + 1)); }

# bench NAME STATUS PATTERN OPTION...: exit status, and a pattern in stdout + stderr
bench() {
  "$program" bench "${@:4}" > "$work/out" 2>&1
  local status=$?
  [ "$status" = "$2" ] || fail "$1: exit $status instead of $2: $(cat "$work/out")"
  grep -Eq -- "$3" "$work/out" || fail "$1: no '$3' in: $(cat "$work/out")"
}

cell=(attention --batch 4 --shared 512 --tail 32 --reps 2)
for backend in cpu reference; do
  bench "always shares on $backend" 0 "1 cells, 0 skipped" "${cell[@]}" --always --backend "$backend"
  bench "a swapped page on $backend" 1 "outputs of the arms differ" "${cell[@]}" --inject-fault --backend "$backend"
  bench "a mislabelled arm on $backend" 1 "arm 'off' took the path shared" "${cell[@]}" --mislabel --backend "$backend"
done
bench "every variant" 0 "1 cells, 0 skipped" "${cell[@]}" --q-len 3 --window 300 --softcap 30 --sinks --dtype f16
bench "a grid in another type" 0 '"cell":"B4 S2048 .*"dtype":"F16"' attention --grid seed --dtype f16 --shard 0/8 \
  --reps 1 --json -
bench "time that is over" 1 "1 cells were skipped; a gate needs all" "${cell[@]}" --gate 2 --max-seconds 0.000001
bench "warm caches of a host" 2 "leave it out" "${cell[@]}" --warm
if ! "$program" bench "${cell[@]}" --backend cuda > "$work/out" 2>&1; then
  grep -Eiq "cuda" "$work/out" || fail "a back end that is not there: $(cat "$work/out")"
fi

for shard in 0 1 2; do
  bench "shard $shard" 0 "[12] cells, 0 skipped" attention --grid-file <(
    echo '[{"batch": 2, "shared": 64, "tail": 9, "q_heads": 4, "kv_heads": 2, "head_dim": 64, "page": 16},
           {"batch": 3, "shared": 64, "tail": 9, "q_heads": 4, "kv_heads": 2, "head_dim": 64, "page": 16},
           {"batch": 4, "shared": 64, "tail": 9, "q_heads": 4, "kv_heads": 2, "head_dim": 64, "page": 16},
           {"batch": 5, "shared": 64, "tail": 9, "q_heads": 4, "kv_heads": 2, "head_dim": 64, "page": 16}]'
  ) --shard "$shard/3" --reps 1 --json "$work/$shard"
done
bench "a merge" 0 '"cells":4,"skipped":0' merge "$work/all" "$work/0" "$work/1" "$work/2"
[ "$(grep -c '"arm"' "$work/all")" = 8 ] || fail "the merged record has not two lines a cell: $(cat "$work/all")"
bench "itself" 0 "B5 S64 U9 4/2 D64 p16 / off .* 1.000" compare "$work/all" "$work/all"
bench "a missing shard" 2 "shard 1/3 of grid '.*' is missing" merge "$work/all" "$work/0" "$work/2"
sed -i '$d' "$work/1"
bench "a run that did not end" 1 "ends without its summary" merge "$work/all" "$work/0" "$work/1" "$work/2"

[ "$failures" = 0 ] && echo "bench attention: all passed"
exit "$failures"
