#!/usr/bin/env bash
# From a bare clone to a predicted DLRM batch, with no GPU and no Python: installs what is missing,
# builds the program and all else that `cmake --install build/release` needs, builds the graph of the
# MLPerf DLRM, draws one predicted training step as a page (build/dlrm_mlperf_2048.html) and prints it.
#
#   bash examples/quickstart.sh [GPU]        default: a100-sxm-40gb
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
gpu="${1:-a100-sxm-40gb}"
graph=build/dlrm_mlperf_2048.json.gz

bash examples/install_packages.sh
if command -v ccache >/dev/null; then export CMAKE_CXX_COMPILER_LAUNCHER=ccache; fi

echo "Building perfpredict (preset release)"
# Large pieces compile in half the time. Tests need more packages; a build folder that has them already
# keeps them.
options=()
if [[ ! -f build/release/CMakeCache.txt ]]; then
  options=(-DPERFMODEL_UNITY=ON -DPERFMODEL_BUILD_TESTS=OFF -DPERFMODEL_BUILD_EXAMPLES=OFF
    -DPERFMODEL_BUILD_KERNELS_BENCH=OFF)
fi
mkdir -p build
cmake --preset release "${options[@]}" >build/quickstart.log 2>&1 || { cat build/quickstart.log >&2; exit 1; }
cmake --build --preset release --target perfpredict perfmodel_c perfpredict_pages >build/quickstart.log 2>&1 || { cat build/quickstart.log >&2; exit 1; }

run() {
  echo "+ $*"
  "$@"
}
run build/release/bin/perfpredict build dlrm --preset mlperf --batch 2048 -o "$graph"
run build/release/bin/perfpredict report "$graph" --gpu "$gpu" -o "${graph%.json.gz}.html"
# One host for every GPU; --overheads takes a table made from your own trace.
run build/release/bin/perfpredict predict "$graph" --gpu "$gpu"
