#!/usr/bin/env bash
# Packs what measuring needs into a folder that runs on another machine of the same kind (x86-64 Linux,
# glibc not older than here) without installing or building anything there.
#
#   bash kernels_bench/bundle.sh FOLDER
#   FOLDER/kernels_bench run --out DIR --budget 8m
#   python3 FOLDER/pytorch/collect.py --out DIR --tier 1
#
# The programs are taken from $PERFMODEL_BIN or build/release/bin. Libraries of the GPU's vendor are
# not packed: the machine with the GPU has its own.
set -euo pipefail
if (($# != 1)); then
  echo "usage: bundle.sh FOLDER" >&2
  exit 2
fi
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
bin="${PERFMODEL_BIN:-$here/../build/release/bin}"
if [[ ! -x "$bin/kernels_bench" ]]; then
  echo "bundle.sh: no kernels_bench in $bin (name its folder in PERFMODEL_BIN)" >&2
  exit 1
fi
if [[ -e "$1" ]]; then
  echo "bundle.sh: $1 exists already" >&2
  exit 1
fi

mkdir -p "$1/bin" "$1/lib" "$1/share/perfmodel/data"
cp "$bin/kernels_bench" "$1/bin/"
for backend in cuda hip; do
  module="$bin/libkernels_bench_$backend.so"
  if [[ -f "$module" ]]; then
    cp "$module" "$1/bin/"
  else
    echo "note: no $backend module in $bin" >&2
  fi
done
# All but what belongs to the machine: the C library, the C++ runtime, the vendor's runtime.
ldd "$bin/kernels_bench" | awk '$2 == "=>" { print $3 }' |
  grep -vE '/(ld-linux|lib(c|m|dl|rt|pthread|stdc\+\+|gcc_s|amdhip64))[.-][^/]*$' |
  xargs -I{} cp -L {} "$1/lib/"
cp -r "$here/../data/gpus" "$here/../data/architectures" "$1/share/perfmodel/data/"
cp -r "$here/pytorch" "$1/"
find "$1" -name __pycache__ -prune -exec rm -r {} +
cat >"$1/kernels_bench" <<'LAUNCHER'
#!/usr/bin/env bash
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
export LD_LIBRARY_PATH="$here/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
exec "$here/bin/kernels_bench" "$@"
LAUNCHER
chmod +x "$1/kernels_bench"
du -sh "$1" | awk '{ print $2 ": " $1 }'
