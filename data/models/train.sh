#!/usr/bin/env bash
# Fits the shipped kernel models anew, to the byte: bash data/models/train.sh PUBLIC_DATA [PERFPREDICT]
# PUBLIC_DATA: folder with the measurements neusight/, deepbench/, fp8_gemm/ and silicon/.
set -euo pipefail
public=$1
perfpredict=${2:-build/release/bin/perfpredict}
out=$(cd "$(dirname "$0")" && pwd)
reports=${REPORTS:-}

neusight="NeuSight artifact (Lee, Phanishayee, Mahajan, ASPLOS 2025; repository sitar-lab/NeuSight, commit 6945927), MIT licence"
deepbench="Baidu DeepBench (commit da81ba7), Apache-2.0 licence"
pipeweave="zksainx/pipeweave (commit 55e0317), Apache-2.0 licence"
aiconfigurator="ai-dynamo/aiconfigurator (commit 095f58a), Apache-2.0 licence"
aiter="ROCm/aiter (commit e404860), MIT licence"

fit() {  # family file note data...
  local family=$1 file=$2 note=$3
  shift 3
  "$perfpredict" train "$@" --family "$family" -o "$out/$file.json" --note "$note" \
    ${reports:+--report "$reports"} \
    | tee ${reports:+"$reports/$file.txt"}
}

[[ -z $reports ]] || mkdir -p "$reports"
fit gemm gemm-float32 "$neusight" \
  "$public/neusight/kernels_bmm.csv.gz" "$public/neusight/kernels_linear.csv.gz" --rows paper
fit elementwise elementwise-float32 "$neusight" "$public/neusight/kernels_elementwise.csv.gz" --rows paper
fit softmax softmax-float32 "$neusight" "$public/neusight/kernels_softmax_ln.csv.gz" --rows paper
fit norm norm-float32 "$neusight" "$public/neusight/kernels_softmax_ln.csv.gz" --rows paper
fit convolution convolution-float32 "$neusight; $deepbench" \
  "$public/neusight/kernels_conv2d.csv.gz" "$public/deepbench/conv.csv.gz"
fit gemm gemm-bfloat16 "$aiconfigurator" "$public/silicon/gemm_bf16.csv.gz" "$public/silicon/bmm_bf16.csv.gz"

# The fp8 rows of a table that has both types; a file holds one.
fp8_rows=$(mktemp -d)/amd_gemm.csv
trap 'rm -r "$(dirname "$fp8_rows")"' EXIT
zcat "$public/silicon/amd_gemm.csv.gz" | awk -F, 'NR <= 2 || $3 == "fp8"' >"$fp8_rows"
fit gemm gemm-float8 "$pipeweave; $aiter" "$public/fp8_gemm/gemm_fp8.csv.gz" "$fp8_rows" --dtype fp8
