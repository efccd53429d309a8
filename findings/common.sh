# shellcheck shell=bash
# Sourced by every finding. Packages are unpacked in a temporary folder, nothing is installed on the machine.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

# debian NAME=VERSION...: these packages and the dependencies that the machine lacks.
debian() {
  mkdir -p archives/partial root
  apt-get install -qq -y --download-only --reinstall --no-install-recommends \
    -o Debug::NoLocking=1 -o Dir::Cache::archives="$work/archives" "$@" >apt.log 2>&1 || { cat apt.log; exit 1; }
  local package
  for package in archives/*.deb; do dpkg -x "$package" root; done
  local libraries=$work/root/usr/lib/x86_64-linux-gnu
  export PATH=$work/root/usr/bin:$PATH PYTHONPATH=$work:$work/root/usr/lib/python3/dist-packages
  export LD_LIBRARY_PATH=$libraries:$libraries/blas:$libraries/lapack:$libraries/openblas-pthread
}

# npm_packages NAME@VERSION...: these packages, in node_modules here.
npm_packages() {
  npm install --prefix "$work" --no-audit --no-fund --loglevel=error --save-exact "$@" >npm.log 2>&1 || { cat npm.log; exit 1; }
}

# torch_recorder: PyTorch, and record.py with record(function), the nodes of the execution graph of a call.
torch_recorder() {
  debian python3-torch=1.13.1+dfsg-4 libtorch1.13=1.13.1+dfsg-4
  cat >record.py <<'PYTHON'
import json
from torch.profiler import ExecutionGraphObserver

def record_text(function):
    observer = ExecutionGraphObserver()
    observer.register_callback("graph.json")
    observer.start()
    function()
    observer.stop()
    observer.unregister_callback()
    with open("graph.json") as file:
        return file.read()

def record(function):
    return json.loads(record_text(function))["nodes"]
PYTHON
}

# expect: compares what a command printed (seen.txt) with standard input, what it printed when this was found.
expect() {
  diff - seen.txt || { echo "$(basename "$0" .sh): changed (< stated, > seen)"; exit 1; }
  echo "$(basename "$0" .sh): as stated"
}
