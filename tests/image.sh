#!/usr/bin/env bash
# Takes the steps of the Dockerfile for the image of the manager without a container runtime, in a clean folder: context,
# stubs, build of dependencies, build of the program, root file system, notices. Then checks the result: the manager runs in
# that root, contains no path of this machine and no crate of the commands, and all files fit into 15 MiB. Prints the table
# of sizes. `tests/image.sh FOLDER` keeps the folder.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
keep=${1:-}
folder=${keep:-$(mktemp -d)}
trap '[ -n "$keep" ] || rm -rf "$folder"' EXIT
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
limit=$((15 * 1024 * 1024))
fail() { printf 'image: %s\n' "$*" >&2; exit 1; }

# The context: tracked files that .dockerignore admits.
context() {
  local to=$1 wanted=() without=() line
  while read -r line; do
    case $line in
      '#'* | '*' | '') ;;
      '!'*) wanted+=("${line#!}") ;;
      *) without+=(":(exclude)$line") ;;
    esac
  done < .dockerignore
  mkdir -p "$to"
  git ls-files -z --cached --others --exclude-standard -- "${wanted[@]}" "${without[@]}" | xargs -0 cp --parents --target-directory "$to"
}

step() { printf '== %s\n' "$*"; began=$SECONDS; "$@"; printf '   %d s\n' $((SECONDS - began)); }

step context "$folder/manifests"
step deploy/image/stubs.sh "$folder/manifests"
mkdir -p "$folder/src"
cp -a "$folder/manifests/." "$folder/src"
cd "$folder/src"
unset CARGO_TARGET_DIR
step deploy/image/build.sh manager
cd - > /dev/null
context "$folder/src"
cd "$folder/src"
find . -path ./target -prune -o -name '*.rs' -exec touch {} +
SOURCE_DATE_EPOCH=$(git -C "$OLDPWD" log -1 --format=%ct)
revision=$(git -C "$OLDPWD" rev-parse HEAD)
export SOURCE_DATE_EPOCH WVA_REVISION=$revision
step deploy/image/build.sh manager 2>&1 | tee "$folder/second"
# Crates of the workspace have their folder in the output. The layer of the stubs must already have compiled all others.
again=$(grep -E '^ +Compiling [^(]+$' "$folder/second" || true)
[ -z "$again" ] || fail "dependencies are compiled again for every commit: $again"
rm -rf "$folder/image"
step deploy/image/rootfs.sh target/release/manager "$folder/image"
step deploy/image/notices.sh manager "$folder/image/usr/share/doc/wva"

echo "== the result"
enter=(unshare --mount chroot --userspec=65532:65532)
[ "$(id -u)" = 0 ] || enter=(unshare --user --map-root-user chroot)
"${enter[@]}" "$folder/image" /manager --version > "$folder/version" || fail "/manager does not run in the image's root"
cat "$folder/version"
grep -qF "revision $revision" "$folder/version" || fail "the program does not report revision $revision"
! grep -qaF -e "$folder" -e "${CARGO_HOME:-$HOME/.cargo}/registry" "$folder/image/manager" || fail "the program names a folder of this machine"
sha256sum "$folder/image/manager" | cut -c1-64
! grep -E '^PackageName: wva-(cli|simulator)$' "$folder/image/usr/share/doc/wva/sbom.spdx" || fail "the manager has crates of the commands"
grep -c '^PackageName:' "$folder/image/usr/share/doc/wva/sbom.spdx" | sed 's/$/ crates in sbom.spdx/'
zgrep -c '^====$' "$folder/image/usr/share/doc/wva/NOTICES.gz" | sed 's/$/ texts in NOTICES.gz/'
cd "$folder/image"
find . -type f -printf '%s %p\n' | sort -rn | awk '{ printf "%10.2f MiB  %s\n", $1 / 1048576, substr($2, 2) }'
size=$(find . -type f -printf '%s\n' | awk '{ all += $1 } END { print all }')
packed=$(tar -c . | gzip -9 | wc -c)
awk -v size="$size" -v packed="$packed" 'BEGIN { printf "%10.2f MiB  all of it, %.2f MiB packed\n", size / 1048576, packed / 1048576 }'
[ "$size" -le $limit ] || fail "it has $size bytes, more than 15 MiB"
