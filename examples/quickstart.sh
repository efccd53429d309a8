#!/usr/bin/env bash
# From a bare clone to a predicted DLRM batch, with no GPU and no Python: installs what is missing,
# builds what a prediction needs and predicts one training step of a DLRM that fits. Then it builds
# the rest that `cmake --install build/release` needs, and asks about the MLPerf DLRM, which does
# not fit, for the sharding that makes it fit.
#
#   bash examples/quickstart.sh [GPU]        default: a100-sxm-40gb
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
gpu="${1:-a100-sxm-40gb}"
graph=build/dlrm_mlperf_2048.json.gz
log=build/quickstart.log

mkdir -p build
# spent <what>: "what after 2:46 (CPU time 5m10.2s and 0m20.1s of the system)".
spent() {
  local user system
  times >build/quickstart.times  # in a pipe it would count another shell's children
  read -r user system < <(tail -n 1 build/quickstart.times)
  printf '%s after %d:%02d (CPU time %s and %s of the system)\n' "$1" $((SECONDS / 60)) $((SECONDS % 60)) "$user" "$system"
}

bash examples/install_packages.sh
spent "Packages"
if command -v ccache >/dev/null; then export CMAKE_CXX_COMPILER_LAUNCHER=ccache; fi

# Large pieces and little optimisation compile in half the time; docs/building.md has the fastest
# program. Tests need more packages. A build folder that is there already keeps its settings.
options=()
if [[ ! -f build/release/CMakeCache.txt ]]; then
  options=(-DPERFMODEL_UNITY=ON -DPERFMODEL_FIRST_ANSWER=ON "-DCMAKE_CXX_FLAGS_RELEASE=-O1 -DNDEBUG"
    -DPERFMODEL_BUILD_TESTS=OFF -DPERFMODEL_BUILD_EXAMPLES=OFF -DPERFMODEL_BUILD_KERNELS_BENCH=OFF)
fi
cmake --preset release "${options[@]}" >"$log" 2>&1 || { cat "$log" >&2; exit 1; }

# Says how much of the build is done and how long the rest takes, from lines that begin with steps
# done, all steps and seconds: on a terminal in one line, else every tenth.
progress() {
  local line built all seconds left share shown=-1 end='\n'
  [[ -t 2 ]] && end='\r'
  while IFS= read -r line; do
    echo "$line" >>"$log"
    read -r built all seconds _ <<<"$line"
    [[ "$built $all $seconds" =~ ^[0-9]+\ [0-9]+\ [0-9.]+$ ]] || continue
    share=$((100 * built / all))
    [[ "$end" == '\r' || $((share / 10)) -gt $shown ]] || continue
    shown=$((share / 10))
    left=$((${seconds%.*} * (all - built) / (built > 0 ? built : 1)))
    printf "  %3d %% built, %d:%02d left   $end" "$share" $((left / 60)) $((left % 60)) >&2
  done
  [[ "$end" == '\n' ]] || echo >&2
}
build_targets() {
  NINJA_STATUS='%f %t %e ' cmake --build --preset release --target "$@" 2>&1 | progress ||
    { tail -n 50 "$log" >&2; exit 1; }
}
run() {
  local words="${*/#build\/release\/bin\//}"
  echo "+ ${words/#perfpredict-first/perfpredict}"
  "$@"
}

perfpredict=build/release/bin/perfpredict
first=perfpredict
if grep -q PERFMODEL_FIRST_ANSWER:BOOL=ON build/release/CMakeCache.txt; then first=perfpredict-first; fi
echo "Building what a prediction needs (preset release)"
build_targets "$first"
run "build/release/bin/$first" predict dlrm:default --gpu "$gpu"
spent "First answer"
echo "Building perfpredict, the C library, the manual page and completions"
build_targets perfpredict perfmodel_c perfpredict_pages
run "$perfpredict" build dlrm --preset mlperf --batch 2048 -o "$graph" >/dev/null
run "$perfpredict" report "$graph" --gpu "$gpu" -o "${graph%.json.gz}.html"
# Its tables are larger than most GPUs, so the answer is where they go on eight.
run "$perfpredict" shard "$graph" --gpu "$gpu" --world 8 --time-budget 1
spent "Everything"
