#!/usr/bin/env bash
# Which lines the tests run: builds the preset `coverage`, runs the unit tests that are no night's work, and prints the
# share of lines per folder. Fails below 90 % of the lines of graph, predictors or perfmodel.
#
#   bash tests/coverage.sh [--no-tests]      --no-tests: only counts what an earlier run has left
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
floor=90
folder=build/coverage

if [[ "${1:-}" != --no-tests ]]; then
  cmake --preset coverage -DPERFMODEL_BUILD_TESTS=ON -DPERFMODEL_BUILD_EXAMPLES=OFF -DPERFMODEL_UNITY=ON -DPERFMODEL_TEST_HEADERS=OFF \
    -DPERFMODEL_BUILD_BENCHMARKS=OFF >build/coverage.log 2>&1 || { tail -n 50 build/coverage.log >&2; exit 1; }
  cmake --build --preset coverage >build/coverage.log 2>&1 || { tail -n 50 build/coverage.log >&2; exit 1; }
  find "$folder" -name '*.gcda' -delete
  # Accuracy tests are left out: other tests run the same code. So is faults: if files may not grow,
  # the counts fail, too.
  ctest --test-dir "$folder" --parallel "$(nproc)" --label-regex unit --label-exclude 'gpu|nightly' --exclude-regex '^faults$' \
    >build/coverage_tests.log 2>&1 ||
    { echo "note: some tests failed (build/coverage_tests.log)" >&2; sed -n '/tests FAILED/,$p' build/coverage_tests.log >&2; }
fi
python3 tests/coverage.py "$folder" --floor "$floor"
