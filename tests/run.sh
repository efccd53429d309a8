#!/usr/bin/env bash
# Installs what is missing, builds, and runs every test that needs no GPU.
#
#   bash tests/run.sh [--quick]
#
# Release build: all tests. Then, with clang, what has threads under ThreadSanitizer, and all but speed,
# accuracy, installation and the many predictions that invariants are checked on under AddressSanitizer
# and UBSan, with a short run of every fuzz target; --quick leaves these two out. Each is left out, with a word, where clang is missing, or where it would
# end later than PERFMODEL_TEST_MINUTES after the start (38; 0: no limit). Tests that read public
# measurements skip unless PERFMODEL_PUBLIC_DATA names their folder. The last line is
#   N passed, N failed, N skipped
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

quick=no
case "${1:-}" in
  --quick) quick=yes ;;
  "") ;;
  *) echo "usage: tests/run.sh [--quick]" >&2; exit 2 ;;
esac
export OMP_WAIT_POLICY=passive
jobs="$(nproc)"
passed=0 failed=0 skipped=0

bash examples/install_packages.sh --tests
if command -v ccache >/dev/null; then
  export CMAKE_CXX_COMPILER_LAUNCHER=ccache CCACHE_SLOPPINESS=pch_defines,time_macros
fi
mkdir -p build
installed_at=$SECONDS

# Runs a step with its output in a file, shown only if the step fails.
quietly() {
  local log="$1"
  shift
  if ! "$@" >"$log" 2>&1 </dev/null; then
    tail -n 100 "$log" >&2
    echo "error: failed: $* (whole output: $log)" >&2
    exit 1
  fi
}

# A number of the first element of a JUnit report.
report_count() { sed -n "s/^[[:space:]]*$2=\"\([0-9]*\)\".*/\1/p" "$1" | head -n 1; }

# build_and_test <preset> <cmake option>... -- <ctest option>...
build_and_test() {
  local preset="$1" start=$SECONDS options=()
  shift
  while [[ "$1" != -- ]]; do
    options+=("$1")
    shift
  done
  shift
  local folder="$PWD/build/$preset" log="$PWD/build/$preset/test.log" report="$PWD/build/$preset/test.xml"
  echo "== $preset: building"
  quietly "build/$preset.log" cmake --preset "$preset" -DPERFMODEL_BUILD_TESTS=ON "${options[@]}"
  sed -n 's/^-- kernels_bench: /   kernels_bench: /p' "build/$preset.log"
  quietly "build/$preset.log" cmake --build --preset "$preset" --parallel "$jobs"
  echo "== $preset: testing ($((SECONDS - start)) s)"
  rm -f "$report"
  ctest --test-dir "$folder" --parallel "$jobs" --output-on-failure --no-tests=error \
    --output-log "$log" --output-junit "$report" "$@" >/dev/null 2>&1 </dev/null || true
  if [[ ! -s "$report" ]]; then
    tail -n 50 "$log" >&2
    echo "error: no test ran" >&2
    exit 1
  fi
  local all bad off
  all="$(report_count "$report" tests)"
  bad="$(report_count "$report" failures)"
  off=$(($(report_count "$report" skipped) + $(report_count "$report" disabled)))
  if ((bad > 0)); then
    grep -vE '^ *(Start +[0-9]+:|[0-9]+/[0-9]+ Test .*(Passed|\*\*\*Skipped))' "$log" >&2 || true
  elif ((off > 0)); then
    grep -E '\((Skipped|Disabled)\)$' "$log" || true
  fi
  echo "== $preset: $((all - bad - off)) passed, $bad failed, $off skipped ($((SECONDS - start)) s)"
  passed=$((passed + all - bad - off)) failed=$((failed + bad)) skipped=$((skipped + off))
}

# Whether what takes so many percent of the time of the release stage ends in time; not without clang.
worth_starting() {
  local preset="$1" percent="$2"
  if [[ "$quick" == yes ]]; then return 1; fi
  if ! command -v clang++ >/dev/null; then
    echo "== $preset: left out, no clang"
    return 1
  fi
  local minutes="${PERFMODEL_TEST_MINUTES:-38}"
  if ((minutes > 0 && SECONDS + release_seconds * percent / 100 > minutes * 60)); then
    echo "== $preset: left out, it would take too long"
    return 1
  fi
}

# GPU modules for one architecture each, where their compilers are found; no test runs them. Headers are
# compiled alone once, under the other compiler.
build_and_test release -DPERFMODEL_BUILD_EXAMPLES=ON -DPERFMODEL_BUILD_BENCHMARKS=ON \
  -DPERFMODEL_INSTALL=ON -DPERFMODEL_UNITY=ON -DPERFMODEL_TEST_HEADERS=OFF -DPERFMODEL_CUDA=ON \
  -DPERFMODEL_HIP=ON -DCMAKE_CUDA_ARCHITECTURES=90-real -DPERFMODEL_HIP_ARCHITECTURES=gfx90a \
  -- --label-exclude gpu
release_seconds=$((SECONDS - installed_at))
parts=(-DPERFMODEL_BUILD_EXAMPLES=OFF -DPERFMODEL_BUILD_BENCHMARKS=OFF -DPERFMODEL_INSTALL=OFF
  -DPERFMODEL_UNITY=ON)
if worth_starting tsan 195; then  # itself 30, what comes behind it the rest
  build_and_test tsan "${parts[@]}" -DPERFMODEL_BUILD_KERNELS_BENCH=OFF -- --label-exclude gpu
fi
if worth_starting asan 165; then
  build_and_test asan "${parts[@]}" -- --label-exclude 'gpu|accuracy' \
    --exclude-regex '^(faults$|c_api.out_of_memory$|perfmodel.(Rewritten/)?EveryModel\.|perfmodel.MoreOfEverything\.)'
fi

echo "$passed passed, $failed failed, $skipped skipped"
((failed == 0))
