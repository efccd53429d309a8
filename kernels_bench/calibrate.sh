#!/usr/bin/env bash
# From a GPU to predictions for it: measures kernels, fits kernel models, extracts host overheads of
# whole models if they were recorded.
#
#   bash kernels_bench/calibrate.sh [--budget 10m] [--backend auto] [--share S] [--whole-models]
#   bash kernels_bench/calibrate.sh --fit GPU
#
#   --budget TIME     for the kernels (default 10m); the same command goes on with a campaign that was
#                     stopped, and spends TIME more on one that was not finished
#   --backend NAME    auto, cuda, hip, or analytic: a GPU on paper, to try this without one
#   --share S         of each family's sweep at most, 0 to 1 (default 1)
#   --whole-models    also records the training steps of kernels_bench/pytorch (needs PyTorch)
#   --fit GPU         measures nothing: fits measurements from elsewhere, in measurements/GPU
#
# Leaves, under $PERFMODEL_DATA or data/ of these sources, GPU being the name of the device there:
#
#   measurements/GPU/kernels/*.csv.gz   every row, with device, versions, date and command
#   models/GPU/*.json                   kernel models; `perfpredict predict --gpu GPU` uses them
#   overheads/GPU.json                  host overheads, if whole models were recorded
#   gpus/GPU.json                       a data sheet from driver and peaks, if there was none
#
# The programs are taken from $PERFMODEL_BIN or build/release/bin.
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
bin="${PERFMODEL_BIN:-$here/../build/release/bin}"
data="${PERFMODEL_DATA:-$(cd "$here/.." && pwd)/data}"
export PERFMODEL_DATA="$data" OMP_WAIT_POLICY=passive

budget=10m backend=auto share=1 whole_models=no fit=
while (($#)); do
  if [[ "$1" == --@(budget|backend|share|fit) && $# -lt 2 ]]; then
    echo "calibrate.sh: $1 needs a value (see --help)" >&2
    exit 2
  fi
  case "$1" in
    --budget) budget="$2"; shift 2 ;;
    --backend) backend="$2"; shift 2 ;;
    --share) share="$2"; shift 2 ;;
    --fit) fit="$2"; shift 2 ;;
    --whole-models) whole_models=yes; shift ;;
    -h | --help) sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}"; exit 0 ;;
    *) echo "calibrate.sh: unknown argument: $1 (see --help)" >&2; exit 2 ;;
  esac
done
for program in kernels_bench perfpredict perfpredict-train; do
  if [[ ! -x "$bin/$program" ]]; then
    echo "calibrate.sh: no $program in $bin: build it (preset release, cuda or hip; train needs" \
      "XGBoost), or name its folder in PERFMODEL_BIN" >&2
    exit 1
  fi
done

step() { printf '\n== %s\n' "$*" >&2; }

unpack() {  # a campaign to go on with; where both forms lie, packing was cut short
  local packed
  for packed in "$kernels"/*.csv.gz; do
    if [[ -f "${packed%.gz}" ]]; then rm "$packed"; else gunzip "$packed"; fi
  done
}

pack() {  # the packed file is whole before the other goes
  local table
  for table in "$kernels"/*.csv; do
    gzip -9nc "$table" >"$table.gz.partial"
    mv "$table.gz.partial" "$table.gz"
    rm "$table"
  done
}

measure() {
  step "$gpu: measuring kernels for $budget"
  mkdir -p "$kernels"
  unpack
  local status=0
  "$bin/kernels_bench" run --out "$kernels" --budget "$budget" --backend "$backend" --share "$share" ||
    status=$?
  if ((status != 0)); then
    rmdir "$kernels" "$measurements" 2>/dev/null ||
      echo "calibrate.sh: stopped; what was measured is in $kernels, the same command goes on" >&2
    exit "$status"
  fi
}

shopt -s nullglob
gpu="$fit"
[[ -n "$fit" ]] || gpu="$("$bin/kernels_bench" device --backend "$backend")"
measurements="$data/measurements/$gpu"
kernels="$measurements/kernels"
if [[ -z "$fit" ]]; then
  measure
elif [[ ! -d "$kernels" ]]; then
  echo "calibrate.sh: --fit: no $kernels" >&2
  exit 1
fi
if [[ -f "$kernels/gpu.json" && ! -f "$data/gpus/$gpu.json" ]]; then
  mkdir -p "$data/gpus"
  cp "$kernels/gpu.json" "$data/gpus/$gpu.json"
fi

step "$gpu: fitting kernel models"
mkdir -p "$data/models/$gpu"
"$bin/perfpredict" train "$kernels" -o "$data/models/$gpu/"

if [[ "$whole_models" == yes ]]; then
  step "$gpu: recording whole models"
  python3 "$here/pytorch/collect.py" --out "$data/measurements"
fi
if [[ -f "$measurements/index.json" ]]; then
  step "$gpu: host overheads"
  python3 "$here/pytorch/check.py" "$measurements" ||
    echo "calibrate.sh: overheads are made of what is there; look at the lines above" >&2
  mkdir -p "$data/overheads"
  python3 "$here/pytorch/table.py" "$measurements" --perfpredict "$bin/perfpredict" \
    --overheads "$data/overheads/$gpu.json"
fi
pack

step "done: perfpredict predict GRAPH --gpu $gpu"
