#!/usr/bin/env bash
# Runs a command in a network that has nothing but loopback. The endpoint picker listens on all addresses, and no flag
# changes that. Where this user may not create such a network, the command runs in that of the machine.
set -euo pipefail
# The ioctl SIOCSIFFLAGS with IFF_UP: Linux then gives loopback its address.
up='import fcntl, socket, struct; fcntl.ioctl(socket.socket(), 0x8914, struct.pack("16sH22x", b"lo", 1))'
for namespaces in --net "--user --map-root-user --net"; do
  # shellcheck disable=SC2086 # options are separate words
  if unshare $namespaces python3 -c "$up" 2> /dev/null; then
    # shellcheck disable=SC2086,SC2016 # options are separate words; the inner shell expands its arguments
    exec unshare $namespaces bash -c 'python3 -c "$0" && exec "$@"' "$up" "$@"
  fi
done
echo "test-router: this user may not create networks, so the endpoint pickers listen on all addresses of the machine" >&2
exec "$@"
