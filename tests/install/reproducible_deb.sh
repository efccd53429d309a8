#!/usr/bin/env bash
# Packs a build twice and compares the packages byte by byte.
#
#   bash tests/install/reproducible_deb.sh [BUILD] [--rebuild]     default: build/release
#
# --rebuild clones the repository into another folder and compiles there, with the same options, everything that is packed:
# what is committed, so the tree must hold nothing else. Without it what is packed is the same, at another time.
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
again="$build"
if [[ "$rebuild" == yes ]]; then
  if [[ -n "$(git status --porcelain)" ]]; then
    echo "error: expected all changes committed, found: $(git status --porcelain | head -n 3 | tr '\n' ' ')" >&2
    exit 1
  fi
  git clone --quiet . "$folder/elsewhere"
  again="$folder/elsewhere/build/another"
  # As the first was configured, without what is not packed.
  mapfile -t options < <(sed -nE 's/^((PERFMODEL_[A-Z_0-9]+|CMAKE_BUILD_TYPE|CMAKE_CXX_FLAGS|CMAKE_CUDA_ARCHITECTURES|CMAKE_INSTALL_PREFIX):[A-Z]+=.*)/-D\1/p' \
    "$build/CMakeCache.txt" | grep -vE '^-DPERFMODEL_(BUILD_TESTS|BUILD_EXAMPLES|BUILD_BENCHMARKS|TEST_)')
  cmake -S "$folder/elsewhere" -B "$again" -G Ninja "${options[@]}" -DPERFMODEL_BUILD_TESTS=OFF -DPERFMODEL_BUILD_EXAMPLES=OFF \
    -DPERFMODEL_BUILD_BENCHMARKS=OFF >/dev/null
  cmake --build "$again" --parallel "$(nproc)" >/dev/null
else
  sleep 2  # another second in every time stamp
fi
cpack --config "$again/CPackConfig.cmake" -B "$folder/second" >/dev/null
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
