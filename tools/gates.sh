#!/usr/bin/env bash
# The timing gates, by hand on a quiet machine; the record goes to docs/benchmarks/cpu-gates.{md,json}.
#   1 never slower   auto / off <= 1.01 in every cell of none, seed, small-models, spec, odd, trees
#   2 it does share  the geometric mean of off / auto is printed; cells with B >= 4 and S >= 2,048 at 9/3 heads must be shared
#   3 off against its own record: bench compare BASE HEAD, when a record of the same machine exists
#   4 looking is free  grid none, inside 1
#   5 honest outcome a mislabelled arm and a swapped page must fail
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
program=build/release/headwater
record=docs/benchmarks/cpu-gates
status=0
commit=$(git rev-parse --short HEAD)
mkdir -p docs/benchmarks
: > "$record.json"

report=$(mktemp)
for grid in none seed small-models spec odd trees; do
  echo "== $grid" | tee -a "$report"
  "$program" bench attention --grid "$grid" --gate 1.01 --max-seconds "${SECONDS_PER_GRID:-600}" --commit "$commit" \
    --json "$record.$grid" >> "$report" 2>&1 || { status=1; tail -3 "$report"; }
  cat "$record.$grid" >> "$record.json"
  rm -f "$record.$grid"
  tail -1 "$report"
done

echo "== it does share: 9/3 heads, B >= 4 behind S >= 2,048" | tee -a "$report"
for batch in 4 16 64; do
  for shared in 2048 8000; do
    "$program" bench attention --batch "$batch" --shared "$shared" --expect-shared > "$report.cell" 2>&1 || status=1
    tail -1 "$report.cell" | tee -a "$report"
  done
done
rm -f "$report.cell"

echo "== planning stays inside its budgets" | tee -a "$report"
"$program" bench plan --gate >> "$report" 2>&1 || status=1
tail -1 "$report"

echo "== honest outcome" | tee -a "$report"
for fault in --mislabel --inject-fault; do
  if "$program" bench attention --batch 8 --shared 1024 "$fault" > /dev/null 2>&1; then
    echo "bench attention $fault was not noticed" | tee -a "$report"
    status=1
  else
    echo "bench attention $fault fails, as it must" | tee -a "$report"
  fi
done

{
  echo "# Timing gates on a CPU"
  echo
  echo "\`make gates\` at commit $commit, $(date -u +%Y-%m-%d), $(sed -n 's/^model name.*: //p' /proc/cpuinfo | head -1), $(nproc) cores, $(c++ --version | head -1)."
  echo
  echo '```'
  cat "$report"
  echo '```'
} > "$record.md"
rm -f "$report"
exit "$status"
