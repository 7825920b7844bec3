#!/bin/sh
# Empties the sources of a copy of the workspace, so that what is left changes with dependencies alone: a build of it is
# the image layer that holds all compiled dependencies. Files that no manifest needs to exist are deleted.
# Usage: stubs.sh FOLDER
set -eu
folder=${1:?usage: stubs.sh FOLDER}
[ ! -e "$folder/.git" ] || { echo "stubs.sh: $folder is a checkout: give a copy, its sources are emptied" >&2; exit 1; }

find "$folder" -type f ! -name Cargo.toml ! -name Cargo.lock ! -name '*.rs' ! -path '*/deploy/image/*' -delete
# Cargo wants to see the targets: libraries, programs, build scripts and benches.
find "$folder" -name '*.rs' ! -path '*/src/lib.rs' ! -path '*/src/main.rs' ! -name build.rs ! -path '*/benches/*' -delete
find "$folder" -name '*.rs' | while read -r source; do
  case $source in
    */src/lib.rs) echo '//! Empty.' > "$source" ;;
    *) printf '//! Empty.\nfn main() {}\n' > "$source" ;;
  esac
  # A build must see later that the real source is newer.
  touch -d @0 "$source"
done
find "$folder" -type d -empty -delete
