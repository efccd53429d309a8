#!/usr/bin/env bash
# Makes every table of this folder again, from the public traces and data/measurements (statistics
# only).
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
  "$perfpredict" overheads "${trace_files[@]}" --graph "${graph_files[@]}" --as-recorded -o "$here/$name.json" >/dev/null
  echo "$name.json: $(wc -c <"$here/$name.json") bytes"
}

# pool TABLE [--host PROGRAM] PROGRAM...   (tables of single programs, brought to one host)
pool() {
  local name=$1 options=() files=()
  shift
  if [[ $1 == --host ]]; then options=(--host "$2"); shift 2; fi
  for program in "$@"; do files+=("$here/programs/$program.json"); done
  "$perfpredict" overheads --pool "${files[@]}" "${options[@]}" -o "$here/$name.json" >/dev/null
  echo "$name.json: $(wc -c <"$here/$name.json") bytes"
}

v100=() # four ranks of one DLRM step
for rank in 0 1 2 3; do
  v100+=("dlrm_v100_rank${rank}of8_kineto" "dlrm_v100_rank${rank}of8_et")
done

mkdir -p "$here/programs"
table programs/linear_rtx2080ti linear_kineto linear_et
table programs/resnet18_rtx2080ti resnet18_kineto resnet18_et
table programs/resnet50_ddp_a100 resnet50_ddp_2gpu_a100_kineto resnet50_ddp_et_1.0.3
table programs/rm_8gpu_a100 rm_8gpu_a100_rank3_kineto -

# Tables recorded with a GPU. The MI250 has one recording only, with two collectors on.
table v100-sxm2-32gb "${v100[@]}"
pool rtx-2080-ti linear_rtx2080ti resnet18_rtx2080ti
pool a100-sxm-40gb rm_8gpu_a100 resnet50_ddp_a100
table h100-sxm-80gb bert_small_infer_h100_torch26_kineto -
table mi250 minitoy_train_mi250_rocm62_kineto -
# A program that is the only one of its GPU.
ln -sfn ../v100-sxm2-32gb.json "$here/programs/dlrm_v100.json"
ln -sfn ../h100-sxm-80gb.json "$here/programs/bert_small_infer_h100.json"
ln -sfn ../mi250.json "$here/programs/minitoy_mi250.json"
servers=(dlrm_v100 rm_8gpu_a100 linear_rtx2080ti resnet18_rtx2080ti bert_small_infer_h100 resnet50_ddp_a100 minitoy_mi250)
# The host of the V100 server, in the middle of the servers, as its profiler slowed it.
pool v100-server-2023 --host dlrm_v100 "${servers[@]}"

# One host for every GPU, without a profiler: the programs above and the H200's training traces in
# data/measurements, one table each (tier 4 was measured later and only judges). The H100's unprofiled training steps take out what the profiler
# added; the H200's steps judge.
measurements=$here/../measurements
own=$(mktemp -d)
trap 'rm -rf "$own"' EXIT
python3 - "$measurements/h200-sxm-141gb" >"$own/programs" <<'PROGRAMS'
import collections, json, sys
points = json.load(open(sys.argv[1] + "/index.json"))["points"]
programs = collections.defaultdict(list)
for point in points:
    if "kineto" in point["files"] and point["split"] == "train" and point["tier"] <= 3:
        programs[point["workload"]].append(f"{sys.argv[1]}/{point['key']}.kineto.json.gz")
for name, files in programs.items():
    print(name, *files)
PROGRAMS
files=()
for program in "${servers[@]}"; do files+=("$here/programs/$program.json"); done
while read -r name traces; do
  # shellcheck disable=SC2086
  "$perfpredict" overheads $traces --as-recorded -o "$own/h200-$name.json" >/dev/null
  files+=("$own/h200-$name.json")
done <"$own/programs"
"$perfpredict" overheads --pool "${files[@]}" --host dlrm_v100 -o "$own/recorded.json" >/dev/null
factors=$(python3 "$here/without_collector.py" "$own/recorded.json" "$measurements/h100-sxm-80gb" \
  --graphs "$measurements/h200-sxm-141gb" --perfpredict "$perfpredict")
echo "without the profiler: $factors"
"$perfpredict" overheads --pool "${files[@]}" --host dlrm_v100 --without-collector "$factors" -o "$here/reference.json" >/dev/null
echo "reference.json: $(wc -c <"$here/reference.json") bytes"
