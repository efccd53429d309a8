# Sourced: a bare Debian 12 in a folder. Needs root, debootstrap and a Debian mirror (MIRROR, default
# http://deb.debian.org/debian).

# own_mounts <script> <argument>...: starts the script again in a namespace of its own, so that nothing
# stays mounted, whatever ends it.
own_mounts() {
  if ((EUID != 0)); then
    echo "error: needs root" >&2
    exit 1
  fi
  if [[ -z "${DEBIAN_ROOT_MOUNTS:-}" ]]; then
    DEBIAN_ROOT_MOUNTS=own exec unshare -m bash "$@"
  fi
}

# bare_debian [FOLDER]: sets root to the folder of such a system, made where it is missing; without a
# name it is a temporary one.
bare_debian() {
  root="${1:-}"
  if [[ -z "$root" ]]; then
    root="$(mktemp -d)"
    chmod 755 "$root"  # other users have to get in
    trap 'umount -q -R "$root/dev" "$root/proc" "$root"/mnt/* || true; rm -rf --one-file-system "$root"' EXIT
  fi
  if [[ ! -e "$root/etc/debian_version" ]]; then
    debootstrap --variant=minbase bookworm "$root" "${MIRROR:-http://deb.debian.org/debian}" >/dev/null
  fi
  mount -t proc proc "$root/proc"
}

as_root() { chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root DEBIAN_FRONTEND=noninteractive "$@"; }
as_user() { chroot --userspec=65534:65534 "$root" env -i PATH=/usr/bin:/bin HOME=/nonexistent "$@"; }
step() { echo "== $*"; }
fail() {
  echo "error: $*" >&2
  exit 1
}
