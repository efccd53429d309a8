#!/usr/bin/env bash
# Opens ten reports in headless Chromium and works with them: console, timeline, search, tables, differences.
#
#   bash tests/browser/report_test.sh [FOLDER for pages and screenshots]
#
# Not among the tests of ctest: it needs the packages chromium and python3-jsonschema, a build of preset release
# and the public traces (PERFMODEL_PUBLIC_DATA). A nightly run calls it.
set -euo pipefail
cd "$(dirname "$0")/../.."
folder="${1:-$(mktemp -d)}"
traces="${PERFMODEL_PUBLIC_DATA:?the folder of the public data}/traces"
program=build/release/bin/perfpredict
browser="$(command -v chromium || command -v chromium-browser || command -v google-chrome)" ||
  { echo "error: expected chromium, found none: apt-get install chromium" >&2; exit 1; }
mkdir -p "$folder"

"$program" build dlrm --preset mlperf --batch 2048 -o "$folder/dlrm.json.gz" >/dev/null
"$program" build gpt --preset gpt2 --batch 8 -o "$folder/gpt2.json" >/dev/null
"$program" build gpt --preset gpt2-xl --batch 2 -o "$folder/gpt2-xl.json.gz" >/dev/null  # 30,000 nodes
"$program" whatif "$folder/gpt2.json" --gpus a100-sxm-80gb,h100-sxm-80gb --batch 8,16 --optimizer same,fused --json >"$folder/whatif.json"
"$program" layout llama3-8b --gpu h100-sxm-80gb --world 16 --global-batch 64 --json >"$folder/layout.json"
python3 - "$folder/tables.csv" <<'PY'
import sys
with open(sys.argv[1], "w") as out:
    out.write("table,rows,dim,pooling\n")
    for i in range(200):
        out.write(f"t{i},{1000 * (1 + i * i)},{64 if i % 3 else 128},{1 + i % 30}\n")
PY
"$program" shard "$folder/tables.csv" --gpu h100-sxm-80gb --world 16 --batch-per-gpu 4096 --time-budget 5 --json >"$folder/shard.json"

"$program" report "$folder/dlrm.json.gz" --gpu a100-sxm-40gb -o "$folder/dlrm.html"
"$program" report "$traces/resnet18_kineto.json.gz" -o "$folder/resnet18.html"
"$program" report "$traces"/dlrm_v100_rank[0-3]of8_kineto.json.gz -o "$folder/four_ranks.html"
"$program" report "$traces/bert_small_infer_h100_torch26_kineto.json.gz" -o "$folder/python.html"
"$program" report "$folder/gpt2.json" "$folder/whatif.json" --gpu a100-sxm-80gb -o "$folder/whatif.html"
h200=data/measurements/h200-sxm-141gb
"$program" report "$h200/gpt2-small-512-b4.kineto.json.gz" --compare "$h200/gpt2-small-512.sdpa-flash-b4.kineto.json.gz" \
  -o "$folder/compare.html"
"$program" report "$h200/gpt2-small-1024.bf16-b16.kernels.json.gz" \
  --compare "$h200/gpt2-small-1024.bf16-compile-b16.kernels.json.gz" -o "$folder/compiled.html"
"$program" report "$folder/shard.json" -o "$folder/shard.html"
"$program" report "$folder/layout.json" -o "$folder/layout.html"
"$program" report "$folder/gpt2-xl.json.gz" --gpu h100-sxm-80gb -o "$folder/large.html" \
  --speedscope "$folder/large.speedscope.json" --timeline "$folder/large.chrome.json"
python3 - "$folder" <<'PY'
import json, pathlib, sys
try:
    import jsonschema
except ImportError:
    sys.exit("error: expected Python's jsonschema, found none: apt-get install python3-jsonschema")
for export, schema in (("large.speedscope.json", "speedscope.json"), ("large.chrome.json", "chrome_trace.json")):
    document = json.loads((pathlib.Path(sys.argv[1]) / export).read_text())
    jsonschema.validate(document, json.loads((pathlib.Path("tests/browser/schemas") / schema).read_text()))
    print(f"ok    {export} is as {schema} says")
PY

python3 tests/browser/report_test.py "$browser" "$folder"
