#!/usr/bin/env bash
# The two commands of README.md, from a clone of the last commit, on a bare Debian 12 as its root.
#
#   bash tests/install/readme_root.sh [--no-tests] [ROOT]
#
# --no-tests leaves out the second command: the first one, an installation, and a program built against it.
# ROOT is a folder with such a system (bare_debian.sh). PERFMODEL_PUBLIC_DATA and CUDA_HOME (a CUDA
# toolkit, which Debian 12 has no package of) are seen there if they are set. Prints what the commands
# print, how long each took, and exits as the second does.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/bare_debian.sh"

repository="$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)"
tests=yes
if [[ "${1:-}" == --no-tests ]]; then tests=no; fi
own_mounts "${BASH_SOURCE[0]}" "$@"
if [[ "$tests" == no ]]; then shift; fi
bare_debian "${1:-}"
mount --rbind /dev "$root/dev"
mount --make-rslave "$root/dev"

settings=()
# seen_there <variable>: the folder that it names, read-only and in the same place of every such root.
seen_there() {
  local folder="${!1:-}" place="/mnt/${1,,}"
  [[ -n "$folder" ]] || return 0
  mkdir -p "$root$place"
  mount --bind -o ro "$folder" "$root$place"
  settings+=("$1=$place")
}
seen_there PERFMODEL_PUBLIC_DATA
seen_there CUDA_HOME
if [[ -n "${CUDA_HOME:-}" ]]; then settings+=("PATH=/usr/sbin:/usr/bin:/sbin:/bin:/mnt/cuda_home/bin"); fi

rm -rf "$root/root/perfmodel"
git clone -q "$repository" "$root/root/perfmodel"
step "$(as_root sh -c '. /etc/os-release; echo "$PRETTY_NAME"'), $(as_root dpkg-query -f '.\n' -W | wc -l) packages, $(nproc) cores"
# Installs what the quickstart built, and builds a program of somebody else's against it.
consumer="cmake --install build/release --prefix /root/installed >/dev/null &&
  cmake -S tests/install/consumer -B /root/consumer -G Ninja -DCMAKE_PREFIX_PATH=/root/installed >/dev/null &&
  cmake --build /root/consumer >/dev/null && /root/consumer/consumer && /root/consumer/c_consumer"
for command in "bash examples/quickstart.sh" "$consumer" "bash tests/run.sh"; do
  if [[ "$tests" == no && "$command" == "bash tests/run.sh" ]]; then continue; fi
  step "$command"
  start=$SECONDS
  as_root "${settings[@]}" sh -c "cd /root/perfmodel && $command"
  step "$command: $((SECONDS - start)) s"
done
