#!/usr/bin/env bash
# examples/gate/gate.sh between two commits of a made-up repository.
#
#   gate_script_test.sh PROGRAM
#
# The capture is a stand-in: it builds the model that the commit's file `model` describes.
set -euo pipefail
program=$(realpath "$1")
script=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)/examples/gate/gate.sh
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

cat >"$folder/capture" <<END
#!/usr/bin/env bash
[[ "\$1" == -o && "\$3" == train.py && -f "\$3" ]] && "$program" build gpt --layers 1 \$(<model) -o "\$2"
END
chmod +x "$folder/capture"
export PERFPREDICT=$program CAPTURE=$folder/capture GIT_CONFIG_GLOBAL=/dev/null
git init -q "$folder/repository"
cd "$folder/repository"
git config user.name tester
git config user.email tester@example.org
touch train.py
echo "--precision bf16 --attention flash" >model
git add . && git commit -qm "Fused attention"
echo "--precision bf16" >model

expect() { # STATUS TEXT COMMIT
  local status=0
  bash "$script" "$3" h100-sxm-80gb,rtx-4090 train.py >"$folder/out" 2>"$folder/err" || status=$?
  if [[ $status != "$1" ]] || ! grep -q "$2" "$folder/out"; then
    echo "expected status $1 and '$2', found $status:"
    cat "$folder/out" "$folder/err"
    exit 1
  fi
}
expect 3 "| attention |" HEAD
git commit -qam "No fused attention"
expect 0 "^### Speed gate: pass" HEAD
[[ $(git worktree list | wc -l) == 1 ]] || { echo "expected one worktree"; exit 1; }
echo "gate.sh tells a slower commit"
