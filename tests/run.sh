#!/usr/bin/env bash
# Installs what is missing, builds, and runs every test that needs no GPU, except those that take a night.
#
#   bash tests/run.sh
#
# A release build and its tests: half an hour on two cores. tests/nightly.sh runs the rest: tests with the label
# `nightly`, sanitizers, fuzzing, browsers, bare systems, large inputs. Tests that read public measurements skip unless
# PERFMODEL_PUBLIC_DATA names their folder. The last line is
#   N passed, N failed, N skipped
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. tests/stages.sh
if (($# > 0)); then
  echo "usage: tests/run.sh" >&2
  exit 2
fi

prepare
build_and_test release "${release_options[@]}" -- --label-exclude 'gpu|nightly'
echo "== budget (tests/structure/budget.py)"
python3 tests/structure/budget.py || true  # the test structure.budget has counted it
echo "left to tests/nightly.sh: $(ctest --test-dir build/release -N -L nightly | sed -n 's/^Total Tests: //p') tests of build/release, and its other stages"
echo "$passed passed, $failed failed, $skipped skipped"
((failed == 0))
