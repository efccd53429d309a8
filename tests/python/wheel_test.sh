#!/usr/bin/env bash
# The wheel in a bare virtual environment: nothing else is installed, nothing is downloaded, and neither
# library nor data of the build tree is found.
#   wheel_test.sh CMAKE BUILD_FOLDER LIBRARY PYTHON
set -euo pipefail
cmake="$1" build="$2" library="$3" python="$4"
source="$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)"
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
unset PERFMODEL_DATA PERFMODEL_LIBRARY PYTHONPATH

rm -rf "$build/python/dist"
# As the target perfmodel_wheel does, which other tests would have to wait for.
PERFMODEL_WHEEL_PYTHON="$python" "$cmake" -D STAGE="$build/python" -D LIBRARY="$library" -D SOURCE_DIR="$source" \
  -D SONAME=libperfmodel_c.so.1 -P "$source/perfmodel/python/stage_wheel.cmake" >"$folder/log" 2>&1 ||
  { cat "$folder/log"; exit 1; }
wheel="$(ls "$build"/python/dist/perfmodel-*-py3-none-*.whl)"
"$python" -m venv --without-pip "$folder/venv"
"$python" -m pip -q --disable-pip-version-check --python "$folder/venv/bin/python" install --no-index --no-deps "$wheel"
cd "$folder"
"$folder/venv/bin/python" - "$folder" <<'PYTHON'
import os
import sys

import perfmodel
from perfmodel._library import library

folder = os.path.realpath(sys.argv[1])
assert os.path.realpath(library().path).startswith(folder), library().path
graph = perfmodel.build("mlp", batch=64)
step = perfmodel.predict(graph, gpu="t4")
assert step.step_us > 0
maps = open("/proc/self/maps").read()
assert f"{folder}/venv" in maps
print(f"{os.path.basename(os.path.dirname(perfmodel.__file__))} {perfmodel.__version__} in a bare environment: {step!r}")
PYTHON
