#!/usr/bin/env bash
# Takes a night: every test of tests/run.sh, those that it leaves out, and all other checks.
#
#   bash tests/nightly.sh [STAGE...]      default: all; --list names them
#
# The output of each stage goes to build/nightly/STAGE.log; at the end there is one line per stage.
# If a prerequisite is missing, a stage is left out and says so. Exit 1 if a stage failed.
#
#   PERFMODEL_PUBLIC_DATA  folder of the public measurements
#   FUZZ_SECONDS           of each fuzz target, with sanitizers and without (300)
#   SERVE_REQUESTS         of the stage serve (1,000,000)
#   RELATIONS_SECONDS      of the stage relations (1,800)
#   DEBIAN_ROOT            folder with a bare Debian 12 (default: a temporary one, by debootstrap)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. tests/stages.sh

left_out=77  # exit status of a stage that cannot run here; its last line gives the reason

stages=(release tsan asan asan-accuracy fuzz scale serve relations browser package bare-root coverage)
declare -A what=(
  [release]="all tests of build/release that need no GPU, those with the label nightly, too"
  [tsan]="what has threads under ThreadSanitizer"
  [asan]="all but accuracy, speed and installation under AddressSanitizer and UBSan, and a short run of each fuzz target"
  [asan-accuracy]="the tests of accuracy under AddressSanitizer and UBSan"
  [fuzz]="each fuzz target for FUZZ_SECONDS with sanitizers, then as long without them"
  [scale]="traces of 100 MB to 2 GB, memory and speed; sweeps on 1, 2 and 4 ranks"
  [serve]="SERVE_REQUESTS requests of careless clients; pings next to costly requests"
  [relations]="relations between answers for RELATIONS_SECONDS, with the day of the year as the seed"
  [browser]="pages of reports in Chromium"
  [package]="the Debian packages, twice, and what lintian says of them"
  [bare-root]="the package, then the first command of the README, on a bare Debian 12"
  [coverage]="lines that the tests run"
)

# Ends a stage (each runs in a shell of its own).
leave_out() {
  echo "left out: $*"
  exit "$left_out"
}
need() { command -v "$1" >/dev/null || leave_out "no $1"; }
need_release() {
  [[ -x build/release/bin/perfpredict ]] ||
    { cmake --preset release -DPERFMODEL_BUILD_TESTS=ON "${release_options[@]}" && cmake --build --preset release --parallel "$jobs"; }
}
counted() {
  echo "$passed passed, $failed failed, $skipped skipped"
  ((failed == 0))
}

stage_release() {
  PERFMODEL_RELATIONS=20 build_and_test release "${release_options[@]}" -- --label-exclude gpu
  counted
}

stage_tsan() {
  need clang++
  build_and_test tsan "${sanitizer_options[@]}" -DPERFMODEL_BUILD_KERNELS_BENCH=OFF -- --label-exclude gpu
  counted
}

# Not what fills memory and disks, not the many predictions that invariants are checked on, and not a program of 0.1.0
# that claims a byte more than its options have, which today's longer options read.
asan_excluded='^(faults$|c_api.out_of_memory$|compat.0_1_0$|perfmodel.(Rewritten/)?EveryModel\.|perfmodel.MoreOfEverything\.)'

stage_asan() {
  need clang++
  build_and_test asan "${sanitizer_options[@]}" -DPERFMODEL_TEST_ACCURACY=OFF -- --label-exclude 'gpu|accuracy' \
    --exclude-regex "$asan_excluded"
  counted
}

stage_asan-accuracy() {
  need clang++
  build_and_test asan "${sanitizer_options[@]}" -DPERFMODEL_TEST_ACCURACY=ON -- --label-regex accuracy \
    --label-exclude 'gpu|nightly' --timeout 3600
  counted
}

stage_fuzz() {
  need clang++
  local preset status=0
  # The targets of the stage asan: the preset fuzz learns more from an input, in a build of its own.
  for preset in asan fuzz-fast; do
    cmake --preset "$preset" -DPERFMODEL_BUILD_TESTS=ON "${sanitizer_options[@]}"
    cmake --build --preset "$preset" --parallel "$jobs" --target perfmodel_fuzz_targets
    BUILD="build/$preset" bash tests/fuzz/run.sh "${FUZZ_SECONDS:-300}" "$jobs" || status=1
  done
  return "$status"
}

stage_scale() {
  local trace="${PERFMODEL_PUBLIC_DATA:-}/traces/resnet50_ddp_2gpu_a100_kineto.json.gz"
  [[ -f "$trace" ]] || leave_out "PERFMODEL_PUBLIC_DATA has no trace $(basename "$trace")"
  need_release
  folder="$(mktemp -d)"  # not local: the trap needs it after the function
  trap 'rm -rf "$folder"' EXIT
  python3 tests/scale/large_traces.py table build/release/bin/perfpredict "$trace" --sizes 100 400 2000 --folder "$folder"
  python3 tests/scale/large_traces.py check build/release/bin/perfpredict "$trace" --sizes 400
  if command -v mpirun >/dev/null && [[ -e build/release/bin/libperfpredict_mpi.so ]]; then
    python3 tests/scale/sweep_ranks.py build/release/bin/perfpredict
  else
    echo "left out of this stage: ranks of sweeps (no Open MPI)"
  fi
}

stage_relations() {
  need_release
  python3 tests/relations/relations_test.py build/release/bin/perfpredict data --seconds "${RELATIONS_SECONDS:-1800}" --seed "$(date +%-j)" \
    --library build/release/perfmodel/libperfmodel_c.so --package build/release/python
}

stage_serve() {
  need_release
  python3 tests/serve_load.py build/release/bin/perfpredict --requests "${SERVE_REQUESTS:-1000000}"
  python3 tests/serve_load.py build/release/bin/perfpredict --requests 1000 --costly 0.1 --ping-limit 15
  bash tests/mcp_client_test.sh || [[ $? == 77 ]]
}

stage_browser() {
  [[ -n "${PERFMODEL_PUBLIC_DATA:-}" ]] || leave_out "PERFMODEL_PUBLIC_DATA names no folder"
  command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null ||
    leave_out "no chromium"
  need_release
  bash tests/browser/report_test.sh
}

package() { ls -t build/release/perfmodel_*.deb 2>/dev/null | head -n 1; }

stage_package() {
  need dpkg-shlibdeps
  need_release
  cmake --build build/release --target package --parallel "$jobs"
  cmake --build build/release --target perfmodel_wheel
  bash tests/install/reproducible_deb.sh --rebuild
  bash tests/install/lintian.sh "$(package)"
}

stage_bare-root() {
  ((EUID == 0)) || leave_out "needs root"
  [[ -n "${DEBIAN_ROOT:-}" ]] || need debootstrap
  [[ -n "$(package)" ]] || leave_out "no package: the stage package makes it"
  bash tests/install/debian_root.sh "$(package)" ${DEBIAN_ROOT:+"$DEBIAN_ROOT"}
  bash tests/install/readme_root.sh --no-tests ${DEBIAN_ROOT:+"$DEBIAN_ROOT"}
}

stage_coverage() { bash tests/coverage.sh; }

asked=("$@")
if [[ "${1:-}" == --list ]]; then
  for stage in "${stages[@]}"; do printf '%-14s %s\n' "$stage" "${what[$stage]}"; done
  exit 0
fi
if ((${#asked[@]} == 0)); then asked=("${stages[@]}"); fi
for stage in "${asked[@]}"; do
  if [[ -z "${what[$stage]:-}" ]]; then
    echo "error: expected a stage (${stages[*]}), found \"$stage\"" >&2
    exit 2
  fi
done

prepare
mkdir -p build/nightly
status=0
summary=()
for stage in "${asked[@]}"; do
  log="build/nightly/$stage.log" start=$SECONDS code=0
  echo "-- $stage: ${what[$stage]}"
  # A process of its own, so that a stage ends at its first failure whoever calls it.
  set +e
  (set -e; "stage_$stage") >"$log" 2>&1 </dev/null
  code=$?
  set -e
  case "$code" in
    0) result=passed ;;
    "$left_out") result="left out" ;;
    *) result=FAILED status=1 ;;
  esac
  line="$(printf '%-14s %-8s %6d s  %s' "$stage" "$result" $((SECONDS - start)) "$(grep -v '^ *$' "$log" | tail -n 1 | cut -c 1-120)")"
  echo "$line"
  summary+=("$line")
done
echo
printf '%s\n' "${summary[@]}"
exit "$status"
