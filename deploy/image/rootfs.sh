#!/bin/sh
# Lays out the root file system of the image: the program as /wva, its alias /manager, the shared libraries it names,
# the CAs that the system trusts, and a user that is not root. The Dockerfile runs it, and so does the kubelet of the
# test control plane: what is missing here fails the tests.
# Usage: rootfs.sh BINARY FOLDER
set -eu
binary=${1:?usage: rootfs.sh BINARY FOLDER}
root=${2:?usage: rootfs.sh BINARY FOLDER}

mkdir -p "$root/etc/ssl/certs" "$root/proc" "$root/dev" "$root/sys"
# A link where that is possible: a debug build has hundreds of megabytes.
ln "$binary" "$root/wva" 2>/dev/null || cp "$binary" "$root/wva"
ln -sf wva "$root/manager"

# Each line of ldd names a library by its path, or not at all (the kernel's own).
ldd "$binary" | awk '{ for (i = 1; i <= NF; i++) if ($i ~ /^\//) print $i }' | while read -r library; do
  mkdir -p "$root$(dirname "$library")"
  cp -L "$library" "$root$library"
done

cas=/etc/ssl/certs/ca-certificates.crt
[ -f "$cas" ] || { echo "rootfs.sh: $cas is missing: install ca-certificates" >&2; exit 1; }
cp -L "$cas" "$root$cas"
# The user by number, as runAsNonRoot wants it; names are for those who look.
echo 'nonroot:x:65532:65532:nonroot:/:/sbin/nologin' > "$root/etc/passwd"
echo 'nonroot:x:65532:' > "$root/etc/group"
# Without it glibc asks DNS before /etc/hosts.
echo 'hosts: files dns' > "$root/etc/nsswitch.conf"
