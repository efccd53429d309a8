#!/usr/bin/env bash
# Packs a build twice and compares the packages byte by byte.
#
#   bash tests/install/reproducible_deb.sh [BUILD] [--rebuild]     default: build/release
#
# --rebuild compiles everything anew between the two, in the same folder (what differs then is what the compiler does not
# repeat); without it what is packed is the same, at another time.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
build=build/release rebuild=no
for word in "$@"; do
  if [[ "$word" == --rebuild ]]; then rebuild=yes; else build="$word"; fi
done
export SOURCE_DATE_EPOCH="${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}"
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
cpack --config "$build/CPackConfig.cmake" -B "$folder/first" >/dev/null
if [[ "$rebuild" == yes ]]; then
  cmake --build "$build" --clean-first --parallel "$(nproc)" >/dev/null
fi
sleep 2  # another second in every time stamp
cpack --config "$build/CPackConfig.cmake" -B "$folder/second" >/dev/null
for first in "$folder"/first/*.deb; do
  second="$folder/second/$(basename "$first")"
  if ! cmp "$first" "$second"; then
    dpkg-deb --raw-extract "$first" "$folder/a"
    dpkg-deb --raw-extract "$second" "$folder/b"
    diff -rq "$folder/a" "$folder/b" || true
    exit 1
  fi
  echo "equal: $(basename "$first"), $(sha256sum <"$first" | cut -c 1-16), $(stat -c %s "$first") bytes, SOURCE_DATE_EPOCH=$SOURCE_DATE_EPOCH"
done
