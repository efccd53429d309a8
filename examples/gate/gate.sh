#!/usr/bin/env bash
# Is the working tree's training step slower than another commit's? Captures both steps on this
# machine, which needs no GPU, and compares their predictions on a list of GPUs.
#
#   bash gate.sh COMMIT GPU,... train.py --its arguments
#
# Prints Markdown. Exit status: 0 pass, 3 slower, 4 cannot tell. $PERFPREDICT and $CAPTURE are the
# programs to use (default: perfpredict, and capture.py of the folder above with python3).
set -euo pipefail
if (($# < 3)); then
  echo "usage: gate.sh COMMIT GPU,... train.py [ARGUMENTS]" >&2
  exit 2
fi
commit=$1 gpus=$2
shift 2
examples=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
capture=${CAPTURE:-python3 $examples/capture.py}
work=$(mktemp -d)
trap 'git worktree remove --force "$work/commit" || true; rm -rf "$work"' EXIT

git worktree add --quiet --detach "$work/commit" "$commit"
folder=$(git rev-parse --show-prefix)
$capture -o "$work/new.json" "$@" >&2
(cd "$work/commit/$folder" && $capture -o "$work/base.json" "$@" >&2)
"${PERFPREDICT:-perfpredict}" gate "$work/base.json" "$work/new.json" --gpus "$gpus" --markdown
