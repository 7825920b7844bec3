#!/bin/sh
# Creates the root file system of an image: the program, its shared libraries, the system's CAs, and a user other than root.
# The Dockerfile and the kubelet of the test control plane run it, so a missing file fails the tests.
# Usage: rootfs.sh BINARY FOLDER
set -eu
binary=${1:?usage: rootfs.sh BINARY FOLDER}
root=${2:?usage: rootfs.sh BINARY FOLDER}

mkdir -p "$root/etc/ssl/certs" "$root/proc" "$root/dev" "$root/sys"
# Link if possible: a debug build has hundreds of megabytes.
program=$(basename "$binary")
ln "$binary" "$root/$program" 2>/dev/null || cp "$binary" "$root/$program"

# Each line of ldd has the path of a library, or none (the kernel's own).
ldd "$binary" | awk '{ for (i = 1; i <= NF; i++) if ($i ~ /^\//) print $i }' | while read -r library; do
  mkdir -p "$root$(dirname "$library")"
  cp -L "$library" "$root$library"
done

cas=/etc/ssl/certs/ca-certificates.crt
[ -f "$cas" ] || { echo "rootfs.sh: $cas is missing: install ca-certificates" >&2; exit 1; }
cp -L "$cas" "$root$cas"
# runAsNonRoot needs the user by number; the names are for people.
echo 'nonroot:x:65532:65532:nonroot:/:/sbin/nologin' > "$root/etc/passwd"
echo 'nonroot:x:65532:' > "$root/etc/group"
# Without this file glibc asks DNS before /etc/hosts.
echo 'hosts: files dns' > "$root/etc/nsswitch.conf"
