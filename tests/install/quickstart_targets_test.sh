#!/usr/bin/env bash
# Whether the targets that the quickstart builds make every file that `cmake --install` cannot do
# without. Asks Ninja what it would run; builds nothing.
#
#   quickstart_targets_test.sh QUICKSTART BUILD NINJA
set -euo pipefail
quickstart="$1" build="$(realpath "$2")" ninja="$3"

read -ra targets <<<"$(sed -n 's/^build_targets \([a-z_ ]*\)$/\1/p' "$quickstart" | tr '\n' ' ')"
((${#targets[@]} > 0)) || { echo "error: expected targets in $quickstart, found none" >&2; exit 1; }

# Files in the build folder that the install scripts copy, except those that may be missing.
mapfile -t files < <(find "$build" -name cmake_install.cmake -print0 |
  xargs -0 sed -n '/file(INSTALL /{/ OPTIONAL /d; s/.* FILES \(.*\))$/\1/p}' | grep -o '"[^"]*"' | tr -d '"' |
  grep "^$build/" | sort -u)
commands() { "$ninja" -C "$build" -t commands "$@" 2>/dev/null; }
expected="$(commands "${targets[@]}" | sort | sha256sum)"
checked=0
for file in "${files[@]}"; do
  file="${file#"$build"/}"
  if ! commands "$file" >/dev/null; then continue; fi  # made when CMake configures
  if [[ "$(commands "${targets[@]}" "$file" | sort | sha256sum)" != "$expected" ]]; then
    echo "error: $file is installed, but ${targets[*]} do not build it" >&2
    exit 1
  fi
  checked=$((checked + 1))
done
((checked > 0)) || { echo "error: expected files to install, found none" >&2; exit 1; }
echo "$checked files are built by the quickstart: ${targets[*]}"
