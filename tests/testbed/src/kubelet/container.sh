# Becomes a container's program in its own mount namespace, which unshare has made. It sees the root file system and
# the mounts, and nothing of the test runner's environment. Every step is an exec, so the process id stays the
# program's. Arguments: root, "ro" or "rw", SOURCE TARGET for each mount, "--", then the variables and the command for
# `env -i`.
set -eu
root=$1 mode=$2
shift 2
mount --bind "$root" "$root"
while [ "$1" != -- ]; do
  mount --bind "$1" "$root$2"
  mount -o remount,bind,ro "$root$2"
  shift 2
done
shift
mount --rbind /proc "$root/proc"
for device in null zero random urandom; do mount --bind "/dev/$device" "$root/dev/$device"; done
for file in hosts resolv.conf; do [ ! -e "/etc/$file" ] || mount --bind "/etc/$file" "$root/etc/$file"; done
[ "$mode" = rw ] || mount -o remount,bind,ro "$root"
exec env -i "$@"
