# Shared by tests/run.sh and tests/nightly.sh, which source it in the root of the repository.
export OMP_WAIT_POLICY=passive
jobs="$(nproc)"
passed=0 failed=0 skipped=0

# Packages, and ccache where there is one.
prepare() {
  bash examples/install_packages.sh --tests
  if command -v ccache >/dev/null; then
    export CMAKE_CXX_COMPILER_LAUNCHER=ccache CCACHE_SLOPPINESS=pch_defines,time_macros
  fi
  mkdir -p build
}

# Runs a step with its output in a file, shown only if the step fails.
quietly() {
  local log="$1"
  shift
  if ! "$@" >"$log" 2>&1 </dev/null; then
    tail -n 100 "$log" >&2
    echo "error: failed: $* (whole output: $log)" >&2
    return 1
  fi
}

# A number of the first element of a JUnit report.
report_count() { sed -n "s/^[[:space:]]*$2=\"\([0-9]*\)\".*/\1/p" "$1" | head -n 1; }

# build_and_test <preset> <cmake option>... -- <ctest option>...
# Adds to passed, failed and skipped. A build that fails, or no test that runs, is an error.
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
  quietly "build/$preset.log" cmake --preset "$preset" -DPERFMODEL_BUILD_TESTS=ON "${options[@]}" || return
  sed -n 's/^-- kernels_bench: /   kernels_bench: /p' "build/$preset.log"
  quietly "build/$preset.log" cmake --build --preset "$preset" --parallel "$jobs" || return
  echo "== $preset: testing ($((SECONDS - start)) s)"
  rm -f "$report"
  ctest --test-dir "$folder" --parallel "$jobs" --output-on-failure --no-tests=error \
    --output-log "$log" --output-junit "$report" "$@" >/dev/null 2>&1 </dev/null || true
  if [[ ! -s "$report" ]]; then
    tail -n 50 "$log" >&2
    echo "error: no test ran" >&2
    return 1
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

# GPU modules for one architecture each, where their compilers are found; no test runs them. Headers are
# compiled alone once, under the other compiler.
release_options=(-DPERFMODEL_BUILD_EXAMPLES=ON -DPERFMODEL_BUILD_BENCHMARKS=ON
  -DPERFMODEL_INSTALL=ON -DPERFMODEL_UNITY=ON -DPERFMODEL_TEST_HEADERS=OFF -DPERFMODEL_CUDA=ON
  -DPERFMODEL_HIP=ON -DCMAKE_CUDA_ARCHITECTURES=90-real -DPERFMODEL_HIP_ARCHITECTURES=gfx90a)
sanitizer_options=(-DPERFMODEL_BUILD_EXAMPLES=OFF -DPERFMODEL_BUILD_BENCHMARKS=OFF -DPERFMODEL_INSTALL=OFF
  -DPERFMODEL_UNITY=ON)
