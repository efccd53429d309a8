#!/usr/bin/env bash
# Installs the Debian package on a bare Debian 12, uses it there as an unprivileged user, and removes it. Then the wheel,
# if it is there, and programs that are linked with the package.
#
#   bash tests/install/debian_root.sh PACKAGE.deb [ROOT]
#
# ROOT is a folder with such a system (bare_debian.sh). The package comes from
#   cmake --build build/release --target package
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/bare_debian.sh"

package="$(realpath "${1:?usage: debian_root.sh PACKAGE.deb [ROOT]}")"
own_mounts "${BASH_SOURCE[0]}" "$@"
bare_debian "${2:-}"
# Installed files, without files that packages leave on purpose: /etc/gshadow- is a copy from before
# a package that ours needs added a group.
files() {
  (cd "$root" && find . -xdev \( -path ./proc -o -path ./run -o -path ./var -o -path ./tmp -o -path ./root \) -prune -o -print |
    grep -vE '^./etc/(ld.so.cache|(passwd|shadow|group|gshadow)-)$' | sort)
}

step "$(as_root sh -c '. /etc/os-release; echo "$PRETTY_NAME"'), $(as_root dpkg-query -f '.\n' -W | wc -l) packages"
as_root apt-get -qq purge -y perfmodel >/dev/null 2>&1 || true  # from a run that failed
as_root apt-get -qq update
files >"$root/tmp/before"
cp "$package" "$root/tmp/perfmodel.deb"

step "installing $(basename "$package"), $(stat -c %s "$package") bytes"
dpkg-deb --field "$package" Package Version Section Maintainer Depends Suggests
as_root apt-get -qq install -y --no-install-recommends /tmp/perfmodel.deb >"$root/tmp/apt.log" 2>&1 || { cat "$root/tmp/apt.log"; fail "it cannot be installed"; }
as_root dpkg --verify perfmodel
as_root ldconfig -p | grep libperfmodel_c.so.1 >/dev/null || fail "ldconfig does not know the C library"
for file in usr/share/man/man1/perfpredict.1.gz usr/share/bash-completion/completions/perfpredict \
  usr/share/doc/perfmodel/copyright usr/share/doc/perfmodel/changelog.Debian.gz usr/include/perfmodel.h; do
  [[ -s "$root/$file" ]] || fail "$file is missing"
done
gzip -dc "$root/usr/share/man/man1/perfpredict.1.gz" | sed -n 1p
as_root bash -c '. /usr/share/bash-completion/completions/perfpredict; complete -p perfpredict'

step "as an unprivileged user, from anywhere"
as_user perfpredict --version
for folder in / /usr/share /tmp; do
  as_user sh -c "cd $folder && perfpredict gpus t4" >/dev/null
done
as_user sh -c 'mkdir /tmp/work && cd /tmp/work && perfpredict build dlrm --preset mlperf --batch 2048 -o dlrm.json.gz && perfpredict predict dlrm.json.gz --gpu a100-sxm-40gb' >"$root/tmp/predicted"
sed -n '/ms per batch/p; $p' "$root/tmp/predicted"
as_user sh -c 'cd /tmp/work && perfpredict predict dlrm.json.gz --gpu a100-sxm-40gb --json' | sed -n '0,/"e2e_us"/{/"e2e_us"/p}'
if as_user sh -c 'perfpredict build mlp --batch 8 -o /usr/share/perfmodel/mlp.json' 2>"$root/tmp/refused"; then fail "a user may write to /usr/share"; fi
cat "$root/tmp/refused"
[[ ! -e "$root/usr/bin/perfpredict-train" ]] || as_user perfpredict eval --help | sed -n 1p

python="$(dirname "$package")/python3-$(basename "${package%_*}")_all.deb"
if [[ -e "$python" ]]; then
  step "installing $(basename "$python"), which lies beside it"
  cp "$python" "$root/tmp/python3-perfmodel.deb"
  as_root apt-get -qq install -y --no-install-recommends /tmp/python3-perfmodel.deb >"$root/tmp/apt.log" 2>&1 || { cat "$root/tmp/apt.log"; fail "it cannot be installed"; }
  as_root dpkg --verify python3-perfmodel
  as_user python3 -c 'import perfmodel; print(perfmodel.predict("/tmp/work/dlrm.json.gz", gpu="a100-sxm-40gb"))'
fi

step "data of the user's own, and none of others"
mkdir -p "$root/data/gpus"  # not ours, whatever it is called
as_user perfpredict gpus t4 >/dev/null
rm -r "$root/data"
as_user sh -c 'cp -r /usr/share/perfmodel/data /tmp/work/data && cd /tmp/work/data/gpus && sed -i "s/\"title\": \"[^\"]*\"/\"title\": \"a T4 of our own\"/" t4.json'
as_user env PERFMODEL_DATA=/tmp/work/data perfpredict gpus t4 | grep "a T4 of our own"
if as_user env PERFMODEL_DATA=/nowhere perfpredict gpus t4 2>"$root/tmp/refused"; then fail "PERFMODEL_DATA is not looked at"; fi
cat "$root/tmp/refused"

step "removing"
as_root apt-get -qq purge -y perfmodel >/dev/null 2>&1
as_root apt-get -qq autoremove -y --purge >/dev/null 2>&1
rm -r "$root/tmp/work"
files >"$root/tmp/after"
diff "$root/tmp/before" "$root/tmp/after" >"$root/tmp/left" || { head -n 20 "$root/tmp/left"; fail "these stay, or went"; }
echo "nothing is left; the package works"

wheel="$(find "$(dirname "$package")/python/dist" -name 'perfmodel-*.whl' 2>/dev/null | head -n 1 || true)"  # the folder may be missing
if [[ -n "$wheel" ]]; then
  step "$(basename "$wheel"), $(stat -c %s "$wheel") bytes, without the package"
  as_root apt-get -qq install -y --no-install-recommends python3-pip libfmt9 libsimdjson14 libyaml-cpp0.7 >"$root/tmp/apt.log" 2>&1
  if as_root sh -c 'command -v cc c++'; then fail "there is a compiler"; fi
  cp "$wheel" "$root/tmp/"
  as_user sh -c 'python3 -m pip -q install --no-index --target /tmp/wheel /tmp/perfmodel-*.whl'
  as_user env PYTHONPATH=/tmp/wheel python3 -c 'import perfmodel; print(perfmodel.__file__, perfmodel.predict("gpt2", gpu="h100"))'
  rm -r "$root/tmp/wheel"
fi

step "programs built with the package's headers: README's, and tests/install/consumer"
as_root apt-get -qq install -y --no-install-recommends /tmp/perfmodel.deb g++ cmake make libexpected-dev libfmt-dev libsimdjson-dev \
  nlohmann-json3-dev zlib1g-dev >"$root/tmp/apt.log" 2>&1 || { cat "$root/tmp/apt.log"; fail "it cannot be installed"; }
rm -rf "$root/tmp/source"
mkdir -p "$root/tmp/source/tests/install"
cp -r "$(dirname "${BASH_SOURCE[0]}")/consumer" "$root/tmp/source/tests/install/"
cp "$(dirname "${BASH_SOURCE[0]}")/../../README.md" "$root/tmp/source/"
as_user sh -c 'cmake -S /tmp/source/tests/install/consumer -B /tmp/built >/tmp/built.log 2>&1 && cmake --build /tmp/built >>/tmp/built.log 2>&1' ||
  { cat "$root/tmp/built.log"; fail "they cannot be built"; }
as_user sh -c 'perfpredict build gpt --preset gpt2 --batch 8 -o /tmp/gpt2.json.gz && cd / && /tmp/built/readme /tmp/gpt2.json.gz && /tmp/built/consumer && /tmp/built/c_consumer'
rm -rf "$root/tmp/built" "$root/tmp/source" "$root/tmp/gpt2.json.gz"
as_root apt-get -qq purge -y perfmodel g++ cmake python3-pip >/dev/null 2>&1
as_root apt-get -qq autoremove -y --purge >/dev/null 2>&1
