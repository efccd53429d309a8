#!/usr/bin/env bash
# Debian's checker of packages on the package and the Python package next to it: no tag except the
# listed ones.
#
#   bash tests/install/lintian.sh PACKAGE.deb
set -euo pipefail
package="$(realpath "${1:?usage: lintian.sh PACKAGE.deb}")"
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
if ! command -v lintian >/dev/null; then
  echo "not looked at: tags of lintian, which is not installed"
  exit 0
fi
python="$(dirname "$package")/python3-$(basename "${package%_*}")_all.deb"
packages=("$package")
if [[ -e "$python" ]]; then packages+=("$python"); fi
said="$(lintian --allow-root --no-tag-display-limit "${packages[@]}" || true)"  # its status counts listed ones, too
# "W: perfmodel: tag where"
tags="$(sed -n 's/^[EW]: [^:]*: \([a-z0-9-]*\).*/\1/p' <<<"$said" | sort -u)"
listed="$(sed -n 's/^\([a-z][a-z0-9-]*\) .*/\1/p' "$here/lintian_tags.txt" | sort -u)"
unlisted="$(comm -23 <(echo "$tags") <(echo "$listed") | grep . || true)"
if [[ -n "$unlisted" ]]; then
  grep -F "$unlisted" <<<"$said"
  echo "error: expected the tags of tests/install/lintian_tags.txt alone, found others" >&2
  exit 1
fi
stale="$(comm -13 <(echo "$tags") <(echo "$listed") | grep . || true)"
if [[ -n "$stale" ]]; then
  echo "error: listed in tests/install/lintian_tags.txt, and not found: "$stale >&2
  exit 1
fi
echo "lintian: ${#packages[@]} packages, $(grep -c . <<<"$listed") listed tags, no other"
