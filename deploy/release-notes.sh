#!/bin/sh
# Prints the section of a version from CHANGELOG.md, without its heading. Fails when the section is missing or empty.
# Usage: release-notes.sh VERSION [CHANGELOG]
set -eu
version=${1:?usage: release-notes.sh VERSION [CHANGELOG]}
file=${2:-CHANGELOG.md}
notes=$(awk -v heading="## [$version]" '
  /^## / { inside = index($0, heading) == 1; next }
  inside { print }' "$file")
case $notes in
  *[![:space:]]*) ;;
  *) echo "release-notes.sh: $file has no text under '## [$version]': add it before the release" >&2; exit 1 ;;
esac
printf '%s\n' "$notes" | sed '/./,$!d'
