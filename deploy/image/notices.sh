#!/bin/sh
# Writes what the program is made of: sbom.spdx (SPDX 2.3, tag-value), with every crate that is linked, its version,
# licence, checksum and package URL; and NOTICES, with the licence texts that these crates ship. Run in the workspace.
# TARGET names the target of another machine; the default is this one.
# Usage: notices.sh FOLDER
set -eu
folder=${1:?usage: notices.sh FOLDER}
mkdir -p "$folder"
crates=$(cargo tree --locked --package wva ${TARGET:+--target "$TARGET"} --edges normal --prefix none --format '{p}|{l}|{r}' | sed 's/ (\*)$//' | LC_ALL=C sort -u)
version=$(printf '%s\n' "$crates" | sed -n 's/^wva v\([^ ]*\) .*/\1/p')
created=$(date --utc --date "@${SOURCE_DATE_EPOCH:-0}" +%Y-%m-%dT%H:%M:%SZ)
registry=${CARGO_HOME:-$HOME/.cargo}/registry/src

# The checksum of a crate of the registry, by the lock file.
checksum() {
  awk -v name="name = \"$1\"" -v version="version = \"$2\"" '
    /^\[\[package\]\]/ { n = v = 0 } $0 == name { n = 1 } $0 == version { v = 1 }
    n && v && /^checksum/ { gsub(/[" ]/, ""); sub(/checksum=/, ""); print; exit }' Cargo.lock
}

{
  printf 'SPDXVersion: SPDX-2.3\nDataLicense: CC0-1.0\nSPDXID: SPDXRef-DOCUMENT\nDocumentName: wva-%s\n' "$version"
  printf 'DocumentNamespace: urn:wva:%s:%s\n' "$version" "$(sha256sum Cargo.lock | cut -c1-64)"
  printf 'Creator: Tool: notices.sh\nCreated: %s\n' "$created"
  printf '%s\n' "$crates" | while IFS='|' read -r package licence source; do
    name=${package%% *}
    number=$(printf '%s' "$package" | sed 's/^[^ ]* v\([^ ]*\).*/\1/')
    id=SPDXRef-$(printf '%s-%s' "$name" "$number" | tr -c 'A-Za-z0-9.\n' '-')
    sum=$(checksum "$name" "$number")
    # Older crates write "MIT/Apache-2.0" for what SPDX calls "MIT OR Apache-2.0".
    licence=$(printf '%s' "${licence:-NOASSERTION}" | sed 's#/# OR #g')
    printf '\nPackageName: %s\nSPDXID: %s\nPackageVersion: %s\n' "$name" "$id" "$number"
    printf 'PackageDownloadLocation: %s\nFilesAnalyzed: false\n' "${source:-NOASSERTION}"
    [ -z "$sum" ] || printf 'PackageChecksum: SHA256: %s\n' "$sum"
    printf 'PackageLicenseConcluded: NOASSERTION\nPackageLicenseDeclared: %s\nPackageCopyrightText: NOASSERTION\n' "$licence"
    [ -z "$sum" ] || printf 'ExternalRef: PACKAGE-MANAGER purl pkg:cargo/%s@%s\n' "$name" "$number"
    if [ "$name" = wva ]; then
      printf 'Relationship: SPDXRef-DOCUMENT DESCRIBES %s\n' "$id"
    else
      printf 'Relationship: SPDXRef-wva-%s DEPENDS_ON %s\n' "$version" "$id"
    fi
  done
} > "$folder/sbom.spdx"

# Many crates ship the same text: each stands here once, below those that ship it.
texts=$(mktemp -d)
trap 'rm -rf "$texts"' EXIT
printf '%s\n' "$crates" | while IFS='|' read -r package licence _; do
  name=${package%% *}
  number=$(printf '%s' "$package" | sed 's/^[^ ]* v\([^ ]*\).*/\1/')
  for text in "$registry"/*/"$name-$number"/LICEN[CS]E* "$registry"/*/"$name-$number"/NOTICE* "$registry"/*/"$name-$number"/COPYING*; do
    [ -f "$text" ] || continue
    sum=$(sha256sum < "$text" | cut -c1-64)
    cp "$text" "$texts/$sum"
    printf '%s %s (%s): %s\n' "$name" "$number" "${licence:-no licence named}" "$(basename "$text")" >> "$texts/$sum.of"
  done
done
{
  printf 'wva %s is licensed under the Apache License 2.0; the text is in LICENSE beside this file.\n' "$version"
  printf 'It is linked with crates that ship the texts below.\n'
  for of in "$texts"/*.of; do
    printf '\n====\n'
    cat "$of"
    printf '\n'
    cat "${of%.of}"
  done
} > "$folder/NOTICES"
cp LICENSE "$folder/LICENSE"
