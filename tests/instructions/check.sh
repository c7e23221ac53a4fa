#!/usr/bin/env bash
# Instructions of each kernel against the record of this compiler: more than 5% above it fails. So does more than 5%
# below: a gain that is not recorded could be lost again unnoticed.
#   tests/instructions/check.sh PROGRAM COMPILER            compares, as the test does
#   tests/instructions/check.sh PROGRAM COMPILER --record   writes the record anew
# Counts come from valgrind's callgrind and repeat exactly on any machine; each compiler has a record of its own
# (counts/COMPILER.txt), and without one there is nothing to compare with: exit code 77, which ctest shows as skipped.
set -euo pipefail
program=$1 compiler=$2 mode=${3:-}
record="$(dirname "$0")/counts/$compiler.txt"
command -v valgrind > /dev/null || { echo "valgrind is not installed: tools/setup.sh --test" >&2; exit 1; }
kernels=$("$program")
[ -n "$kernels" ] || { echo "$program names no kernel" >&2; exit 1; }

count() {
  valgrind --tool=callgrind --callgrind-out-file=/dev/null --toggle-collect=measured_region "$program" "$1" 2>&1 |
    sed -n 's/.*Collected : \([0-9]*\).*/\1/p'
}

if [ "$mode" = --record ]; then
  mkdir -p "$(dirname "$record")"
  for kernel in $kernels; do echo "$kernel $(count "$kernel")"; done | tee "$record"
  exit
fi
[ -f "$record" ] || { echo "no record for $compiler; write one with --record"; exit 77; }
if [ "$kernels" != "$(cut -d' ' -f1 "$record")" ]; then
  echo "$record does not have the kernels that $program names; write it anew with --record" >&2
  exit 1
fi

failed=0
for kernel in $kernels; do
  expected=$(sed -n "s/^$kernel //p" "$record")
  actual=$(count "$kernel")
  [ -n "$actual" ] || { echo "$kernel: valgrind counted nothing" >&2; exit 1; }
  change=$(awk -v a="$actual" -v e="$expected" 'BEGIN { printf "%+.1f", 100 * (a / e - 1) }')
  verdict=ok
  if awk -v c="$change" 'BEGIN { exit !(c > 5 || c < -5) }'; then verdict="more than 5% off: mend it, or --record a gain"; failed=1; fi
  printf '%-24s %10d  record %10d  %6s%%  %s\n' "$kernel" "$actual" "$expected" "$change" "$verdict"
done
exit "$failed"
