#!/usr/bin/env bash
# Makes every table of this folder again from the public traces (statistics only).
# Usage: data/overheads/extract.sh TRACES_FOLDER [PERFPREDICT]
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
traces=${1:?usage: extract.sh TRACES_FOLDER [PERFPREDICT]}
perfpredict=${2:-$here/../../build/release/bin/perfpredict}

# table TABLE TRACE GRAPH [TRACE GRAPH]...   (GRAPH "-": none)
table() {
  local name=$1 trace_files=() graph_files=()
  shift
  while (($#)); do
    trace_files+=("$traces/$1.json.gz")
    if [[ $2 == - ]]; then graph_files+=(-); else graph_files+=("$traces/$2.json.gz"); fi
    shift 2
  done
  "$perfpredict" overheads "${trace_files[@]}" --graph "${graph_files[@]}" -o "$here/$name.json" >/dev/null
  echo "$name.json: $(wc -c <"$here/$name.json") bytes"
}

v100=() # four ranks of one DLRM step
for rank in 0 1 2 3; do
  v100+=("dlrm_v100_rank${rank}of8_kineto" "dlrm_v100_rank${rank}of8_et")
done
rtx2080ti=(linear_kineto linear_et resnet18_kineto resnet18_et)
a100=(resnet50_ddp_2gpu_a100_kineto resnet50_ddp_et_1.0.3 rm_8gpu_a100_rank3_kineto -)
h100=(bert_small_infer_h100_torch26_kineto -)
mi250=(minitoy_train_mi250_rocm62_kineto -)

mkdir -p "$here/programs"
table programs/dlrm_v100 "${v100[@]}"
table programs/linear_rtx2080ti linear_kineto linear_et
table programs/resnet18_rtx2080ti resnet18_kineto resnet18_et
table programs/resnet50_ddp_a100 resnet50_ddp_2gpu_a100_kineto resnet50_ddp_et_1.0.3
table programs/rm_8gpu_a100 rm_8gpu_a100_rank3_kineto -
table programs/bert_small_infer_h100 "${h100[@]}"
table programs/minitoy_mi250 "${mi250[@]}"
# First calls only, no steady step: kept for the record, in no table below.
table programs/alexnet_first_calls_a100 alexnet_cudasync_a100_kineto -
table programs/simple_add_a100 simple_add_kineto simple_add_et

table v100-sxm2-32gb "${v100[@]}"
table rtx-2080-ti "${rtx2080ti[@]}"
table a100-sxm-40gb "${a100[@]}"
table h100-sxm-80gb "${h100[@]}"
table mi250 "${mi250[@]}"
table pooled "${v100[@]}" "${rtx2080ti[@]}" "${a100[@]}" "${h100[@]}" "${mi250[@]}"
