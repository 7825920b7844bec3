#!/bin/sh
# Puts the repository that publishes a release into files, in place of the placeholders OWNER/wva, OWNER and localhost/wva.
# The image is ghcr.io/ and the repository in lower case.
# Usage: owner.sh OWNER[/NAME] FILE...
set -eu
repository=${1:?usage: owner.sh OWNER[/NAME] FILE...}
shift
case $repository in */*) ;; *) repository=$repository/wva ;; esac
owner=${repository%%/*}
printf '%s\n' "$repository" | grep -qE '^[A-Za-z0-9][-A-Za-z0-9]*/[-._A-Za-z0-9]+$' && [ "$owner" != OWNER ] ||
  { echo "owner.sh: '$repository' is not a repository on GitHub: write OWNER/NAME" >&2; exit 2; }
lower() { printf '%s' "$1" | tr '[:upper:]' '[:lower:]'; }
image=ghcr.io/$(lower "$repository")
text=$(mktemp)
trap 'rm -f "$text"' EXIT
for file in "$@"; do
  sed -E -e "s#(ghcr\.io/OWNER|localhost)/wva#$image#g" -e "s#ghcr\.io/OWNER#ghcr.io/$(lower "$owner")#g" \
    -e "s#OWNER/wva#$repository#g" -e "s#(^|[^A-Z_])OWNER([^A-Z_]|\$)#\1$owner\2#g" "$file" > "$text"
  # Not mv: the file keeps its mode.
  cat "$text" > "$file"
done
