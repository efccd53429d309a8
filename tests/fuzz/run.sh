#!/usr/bin/env bash
# Runs the fuzz targets of a build with preset fuzz and prints what they did.
#
#   bash tests/fuzz/run.sh [SECONDS [JOBS [TARGET...]]]     default: 60 seconds each, 2 at a time, all
#
# BUILD names another build folder than build/fuzz. Under $BUILD/fuzz every target keeps what it has
# learnt (TARGET/corpus, where the next run goes on), inputs that failed (TARGET/findings) and its
# last output (TARGET/log). A target that fails goes on until the time is up or it failed 10 times.
# Exit 1 if any failed.
set -euo pipefail
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)"
build="${BUILD:-$root/build/fuzz}" seconds="${1:-60}" jobs="${2:-2}"
shift $(($# < 2 ? $# : 2))
programs="$build/bin/fuzz" made="$build/tests/fuzz"
if [[ ! -d "$programs" ]]; then
  echo "no fuzz targets in $build: cmake --preset fuzz && cmake --build --preset fuzz" >&2
  exit 2
fi
export UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 OMP_WAIT_POLICY=passive

stat_of() { awk -v name="stat::$2:" '$1 == name { sum += $2 } END { print sum + 0 }' "$1"; }

# run_target NAME: one line of the table
run_target() {
  local name="$1" work="$build/fuzz/$1" end=$((SECONDS + seconds)) failed=0
  local options=()
  mkdir -p "$work/corpus" "$work/findings"
  : >"$work/log"
  [[ -s "$made/inputs/$name.dict" ]] && options+=(-dict="$made/inputs/$name.dict")  # none is an error
  while ((SECONDS < end && failed < 10)); do
    "$programs/fuzz_$name" "$work/corpus" "$made/inputs/$name" -max_total_time=$((end - SECONDS)) \
      -max_len="$(cat "$made/$name.max_len")" -timeout=20 "${options[@]}" \
      -rss_limit_mb=3000 -print_final_stats=1 -artifact_prefix="$work/findings/" >>"$work/log" 2>&1 && break
    failed=$((failed + 1))
  done
  local runs coverage
  runs="$(stat_of "$work/log" number_of_executed_units)"
  coverage="$(grep -o 'cov: [0-9]*' "$work/log" | awk '{ if ($2 > most) most = $2 } END { print most + 0 }')"
  printf '%-18s %11d %8d %8d %9d %8d\n' "$name" "$runs" $((runs / (seconds > 0 ? seconds : 1))) \
    "$(find "$work/corpus" -type f | wc -l)" "$coverage" "$failed"
}
export -f run_target stat_of
export build seconds programs made

targets=("$@")
if ((${#targets[@]} == 0)); then
  for program in "$programs"/fuzz_*; do targets+=("${program##*/fuzz_}"); done
fi
table="$(mktemp)"
trap 'rm -f "$table"' EXIT
printf '%-18s %11s %8s %8s %9s %8s\n' target executions exec/s corpus coverage crashes
printf '%s\n' "${targets[@]}" | xargs -P "$jobs" -I{} bash -c 'run_target {}' | tee "$table"
if awk '$6 > 0 { bad = 1 } END { exit !bad }' "$table"; then
  echo "inputs that failed: $build/fuzz/*/findings" >&2
  exit 1
fi
