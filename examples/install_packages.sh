#!/usr/bin/env bash
# Installs the Debian or Ubuntu packages of the build, where they are missing.
#
#   bash examples/install_packages.sh [--tests]
#
# --tests adds what the tests and benchmarks need. Does nothing, and needs no rights, if all is there.
set -euo pipefail

# A package, or package:program where a program of that name from anywhere will do.
required=(cmake:cmake ninja-build:ninja g++:g++ pkg-config:pkg-config libeigen3-dev nlohmann-json3-dev
  libfmt-dev libcli11-dev libsimdjson-dev libexpected-dev libtomlplusplus-dev
  libyaml-cpp-dev zlib1g-dev)
optional=()
if [[ "${1:-}" == --tests ]]; then
  required+=(libgtest-dev libgmock-dev libbenchmark-dev python3:python3 groff-base:groff)
  # Fitting; ranks of sweeps; the HIP module of kernels_bench; recording whole models; sanitizers;
  # wheels of the Python package.
  optional+=(clang:clang++ libclang-rt-dev libxgboost-dev xgboost libopenmpi-dev openmpi-bin hipcc:hipcc libamdhip64-dev librocprim-dev python3-torch
    python3-setuptools python3-wheel python3-pip python3-venv)
fi

is_missing() {
  local package="${1%%:*}" program="${1#*:}"
  if [[ "$1" == *:* ]] && command -v "$program" >/dev/null; then return 1; fi
  [[ "$(dpkg-query -W -f='${Status}' "$package" 2>/dev/null)" != "install ok installed" ]]
}

missing_of() {
  local entry
  for entry in "$@"; do
    if is_missing "$entry"; then printf '%s\n' "${entry%%:*}"; fi
  done
}

mapfile -t missing < <(missing_of "${required[@]}")
mapfile -t missing_optional < <(missing_of "${optional[@]}")
if ((${#missing[@]} + ${#missing_optional[@]} == 0)); then exit 0; fi

as_root=()
if ((EUID != 0)); then
  if command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
    as_root=(sudo -n)
  elif ((${#missing[@]} == 0)); then
    echo "note: not installed, and not needed: ${missing_optional[*]}" >&2
    exit 0
  else
    echo "error: missing packages, and no rights to install them. Please run:" >&2
    echo "  sudo apt-get install ${missing[*]}" >&2
    exit 1
  fi
fi

apt() {
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get -o DPkg::Lock::Timeout=300 -qq "$@" </dev/null
}

echo "Installing: ${missing[*]} ${missing_optional[*]}"
apt update
if ((${#missing[@]})); then
  apt install -y --no-install-recommends "${missing[@]}" >/dev/null
fi
if ((${#missing_optional[@]})); then
  if ! apt install -y --no-install-recommends "${missing_optional[@]}" >/dev/null 2>&1; then
    for package in "${missing_optional[@]}"; do  # one that is missing keeps no other out
      apt install -y --no-install-recommends "$package" >/dev/null 2>&1 ||
        echo "note: not available here, and not needed: $package" >&2
    done
  fi
fi
