#!/usr/bin/env bash
# Fits the shipped kernel models anew, to the byte: bash data/models/train.sh PUBLIC_DATA [PERFPREDICT]
# PUBLIC_DATA: folder with the measurements neusight/, deepbench/, fp8_gemm/ and silicon/. The ops that were
# measured on our own lie in data/measurements; their second draw is for judging and is not read here.
# ONLY="norm softmax": these families alone.
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
own="data/measurements (PyTorch 2.11, CUDA 13.0, cuDNN 9.19)"
boards="h100-sxm-80gb h200-sxm-141gb"  # that we measured
own_models="h100-sxm-80gb+h200-sxm-141gb+h800"  # folder of the models of these boards alone; H800 differs in its links

fit() {  # family file note data...
  local family=$1 file=$2 note=$3
  shift 3
  [[ -z ${ONLY:-} || " $ONLY " == *" $family "* ]] || return 0
  "$perfpredict" train "$@" --family "$family" -o "$out/$file.json" --note "$note" \
    ${reports:+--report "$reports"} \
    | tee ${reports:+"$reports/$file.txt"}
}

[[ -z $reports ]] || mkdir -p "$reports"
mkdir -p "$out/$own_models" ${reports:+"$reports/$own_models"}
tables=$(mktemp -d)
trap 'rm -r "$tables"' EXIT

# Rows of one family and type of PyTorch's ops on a board.
ops_of() {  # board family dtype
  zcat "$out/../measurements/$1/ops.csv.gz" | awk -F, -v family="$2" -v dtype="$3" '
    /^# timing/ { print; next }
    /^#/ { next }
    !header { for (i = 1; i <= NF; ++i) at[$i] = i; header = 1; print; next }
    $at["family"] == family && $at["dtype"] == dtype && $at["time_us"] != ""' >"$tables/$1-$2-$3.csv"
  echo "$tables/$1-$2-$3.csv"
}
ops() {  # family dtype: of all boards
  local board
  for board in $boards; do ops_of "$board" "$@"; done
}

fit gemm gemm-float32 "$neusight" \
  "$public/neusight/kernels_bmm.csv.gz" "$public/neusight/kernels_linear.csv.gz" --rows paper
# Libraries of 2016 have one tile for few columns on Maxwell, which no other board of this file shows.
if [[ -z ${ONLY:-} || " $ONLY " == *" gemm "* ]]; then
  zcat "$public/deepbench/gemm.csv.gz" | grep -E '^(device|titanx_maxwell|m40),' >"$tables/maxwell.csv"
  "$perfpredict" train --calibrate "$tables/maxwell.csv" --points 50 --model "$out/gemm-float32.json" \
    -o "$out/gemm-float32.json"
fi
fit elementwise elementwise-float32 "$neusight" "$public/neusight/kernels_elementwise.csv.gz" --rows paper
fit softmax softmax-float32 "$neusight" "$public/neusight/kernels_softmax_ln.csv.gz" --rows paper
fit norm norm-float32 "$neusight" "$public/neusight/kernels_softmax_ln.csv.gz" --rows paper
fit convolution convolution-float32 "$neusight; $deepbench" \
  "$public/neusight/kernels_conv2d.csv.gz" "$public/deepbench/conv.csv.gz"
fit gemm gemm-bfloat16 "$aiconfigurator" "$public/silicon/gemm_bf16.csv.gz" "$public/silicon/bmm_bf16.csv.gz"
fit attention attention-bfloat16 "$aiconfigurator" "$public/silicon/attention.csv.gz"
# Unpublished kinds, from boards with one chip: that chip uses them fully, other NVIDIA chips by
# half.
fit gemm gemm-tf32 "$own" $(ops product tf32)
for family in softmax norm convolution; do
  fit $family $family-bfloat16 "$own" $(ops $family bf16)
done
for family in reduction dropout; do
  fit $family $family-float32 "$own" $(ops $family fp32)
  fit $family $family-bfloat16 "$own" $(ops $family bf16)
done
fit convolution convolution-tf32 "$own" $(ops convolution tf32)
fit gemm gemm-float16 "$own" $(ops product fp16)
# Kinds of which the shared files, or rates of the architecture, know other boards: models of these boards alone.
fit elementwise $own_models/elementwise-bfloat16 "$own" $(ops elementwise bf16)
for family in elementwise softmax norm convolution; do
  fit $family $own_models/$family-float32 "$own" $(ops $family fp32)
done
fit gemm $own_models/gemm-float32 "$own" $(ops product fp32)
# Aligned ones of H100 are public, too: both collections count, theirs by one row in eight, as often as ours.
zcat "$public/silicon/gemm_bf16.csv.gz" | awk -F, '
  /^#/ { print; next } !header { header = 1; print; next } $1 ~ /^h100/ && ++row % 8 == 0' >"$tables/h100.csv"
fit gemm $own_models/gemm-bfloat16 "$own; $aiconfigurator" $(ops product bf16) "$tables/h100.csv"
fit experts experts-bfloat16 "$aiconfigurator" "$public/silicon/moe_bf16.csv.gz"

# A file holds one type; tables of layers say neither how numbers are scaled nor that each time holds
# the kernel that quantises A.
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
