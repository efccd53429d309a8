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
fit attention attention-bfloat16 "$aiconfigurator" "$public/silicon/attention.csv.gz"
fit experts experts-bfloat16 "$aiconfigurator" "$public/silicon/moe_bf16.csv.gz"

# A file holds one type; tables of layers say neither how numbers are scaled nor that each time holds
# the kernel that quantises A.
tables=$(mktemp -d)
trap 'rm -r "$tables"' EXIT
zcat "$public/silicon/amd_gemm.csv.gz" | awk -F, 'NR <= 2 || $3 == "fp8"' >"$tables/amd_gemm.csv"
layers() {  # table scaling
  zcat "$public/silicon/$1.csv.gz" \
    | awk -v kind="$2" '{ print NR == 1 ? $0 : $0 (NR == 2 ? ",scaling,quantizes" : "," kind ",1") }' \
    >"$tables/$1.csv"
}
layers gemm_fp8_token token
layers gemm_fp8_block block
layers gemm_nvfp4 block
fit gemm gemm-float8 "$pipeweave; $aiter; $aiconfigurator" "$public/fp8_gemm/gemm_fp8.csv.gz" \
  "$tables/amd_gemm.csv" "$tables/gemm_fp8_token.csv" "$tables/gemm_fp8_block.csv" --dtype fp8
fit gemm gemm-float4 "$aiconfigurator" "$tables/gemm_nvfp4.csv"

# Without A100, whose rows take the same time whatever the heads.
zcat "$public/silicon/gated_delta.csv.gz" | awk -F, '$1 != "a100-sxm-80gb"' >"$tables/gated_delta.csv"
fit linear_attention linear_attention-bfloat16 "$aiconfigurator" "$tables/gated_delta.csv"
