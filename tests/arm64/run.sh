#!/bin/sh
# The core's tests on arm64: in a Debian root under qemu-user, with numpy and pyusb alone. See docs/phone.md.
#
#   sudo tests/arm64/run.sh [pytest's arguments]
#
# ROOT names the directory of the root, which is made once. PYTHON is one with pip, for the wheels. The
# machine stays as it is: binfmt_misc and mounts belong to namespaces that end with the script.
set -eu

repository=$(cd "$(dirname "$0")/../.." && pwd)
ROOT=${ROOT:-${XDG_CACHE_HOME:-$HOME/.cache}/towline/arm64}
PYTHON=${PYTHON:-$repository/.venv/bin/python}
SUITE=${SUITE:-bookworm}
MIRROR=${MIRROR:-http://deb.debian.org/debian}
PACKAGES=python3,libusb-1.0-0

fail() {
  echo "$0: $1" >&2
  exit 3
}

if [ "${1-}" != --inside ]; then
  [ "$(id -u)" = 0 ] || fail "needs root: debootstrap sets owners, and namespaces mount (sudo)"
  for tool in debootstrap dpkg-deb unshare qemu-aarch64; do
    command -v $tool > /dev/null || fail "$tool is missing: sudo apt-get install debootstrap qemu-user"
  done

  if [ ! -e "$ROOT/.made" ]; then
    mkdir -p "$ROOT"
    # Unpacked, not configured: Python and its libraries need no more, and it takes a minute instead of ten.
    debootstrap --arch=arm64 --foreign --variant=minbase --include=$PACKAGES "$SUITE" "$ROOT" "$MIRROR" >&2
    for package in "$ROOT"/var/cache/apt/archives/*.deb; do
      dpkg-deb --fsys-tarfile "$package" | tar -x -C "$ROOT" --keep-directory-symlink
    done
    "$PYTHON" -m pip install -q --target "$ROOT/opt/site" --only-binary=:all: --implementation cp \
      --python-version "$(basename "$ROOT"/usr/bin/python3.?? | sed s/python//)" \
      --platform manylinux2014_aarch64 --platform manylinux_2_17_aarch64 --platform manylinux_2_28_aarch64 \
      numpy pyusb pytest hypothesis >&2
    # qemu runs inside the root and finds its loader and libraries where it does outside: no path is shared.
    for file in $(ldd "$(command -v qemu-aarch64)" | grep -o '/[^ ]*'); do
      mkdir -p "$ROOT$(dirname "$file")"
      cp -L "$file" "$ROOT$file"
    done
    rm -rf "$ROOT/proc"
    mkdir -p "$ROOT/proc" "$ROOT/towline"
    touch "$ROOT/.made"
  fi
  exec unshare --user --map-root-user --mount \
    "$0" --inside "$repository" "$ROOT" "$@"
fi

shift
repository=$1 ROOT=$2
shift 2
mount -t binfmt_misc none /proc/sys/fs/binfmt_misc \
  || fail "the kernel gives user namespaces no binfmt_misc of their own (Linux 6.7 does)"
magic='\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00'
mask='\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff'
printf '%s' ":aarch64:M::$magic:$mask:$(command -v qemu-aarch64):F" > /proc/sys/fs/binfmt_misc/register
mount --bind "$repository" "$ROOT/towline"
mount -o remount,bind,ro "$ROOT/towline"
mount --rbind /proc "$ROOT/proc"
mount --rbind /dev "$ROOT/dev"
[ $# -gt 0 ] || set -- tests/unit tests/contract -m "not slow"
exec chroot "$ROOT" /usr/bin/env -i PATH=/usr/bin:/bin HOME=/tmp TMPDIR=/tmp PYTHONDONTWRITEBYTECODE=1 \
  PYTHONPATH=/opt/site:/towline /bin/sh -c \
  'cd /towline && exec python3 -m pytest -q -p no:cacheprovider -p tests.arm64.core_only "$@"' sh "$@"
