#!/bin/sh
# Empties the sources of a copy of the workspace, so that it changes only with dependencies. Its build is the image layer
# with all compiled dependencies. Deletes files that no manifest needs.
# Usage: stubs.sh FOLDER
set -eu
folder=${1:?usage: stubs.sh FOLDER}
[ ! -e "$folder/.git" ] || { echo "stubs.sh: $folder is a checkout, and this script empties sources: pass a copy" >&2; exit 1; }

find "$folder" -type f ! -name Cargo.toml ! -name Cargo.lock ! -name '*.rs' ! -path '*/deploy/image/*' -delete
# Cargo needs the targets: libraries, programs, build scripts and benches.
find "$folder" -name '*.rs' ! -path '*/src/lib.rs' ! -path '*/src/main.rs' ! -path '*/src/bin/*' ! -name build.rs ! -path '*/benches/*' -delete
find "$folder" -name '*.rs' | while read -r source; do
  case $source in
    */src/lib.rs) echo '//! Empty.' > "$source" ;;
    *) printf '//! Empty.\nfn main() {}\n' > "$source" ;;
  esac
  # The real source must be newer than the stub.
  touch -d @0 "$source"
done
find "$folder" -type d -empty -delete
