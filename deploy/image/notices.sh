#!/bin/sh
# Writes sbom.spdx (SPDX 2.3, tag-value), with version, licence, checksum and package URL of every linked crate, and
# NOTICES.gz, with the licence texts of these crates. Run in the workspace. TARGET sets another target platform.
# Usage: notices.sh PROGRAM FOLDER
set -eu
program=${1:?usage: notices.sh PROGRAM FOLDER}
folder=${2:?usage: notices.sh PROGRAM FOLDER}
features=
[ "$program" = wva ] || features=--no-default-features
mkdir -p "$folder"
# shellcheck disable=SC2086 # no argument without a feature flag
crates=$(cargo tree --locked --package wva $features ${TARGET:+--target "$TARGET"} --edges normal --prefix none --format '{p}|{l}|{r}' | sed 's/ (\*)$//' | LC_ALL=C sort -u)
version=$(printf '%s\n' "$crates" | sed -n 's/^wva v\([^ ]*\) .*/\1/p')
created=$(date --utc --date "@${SOURCE_DATE_EPOCH:-0}" +%Y-%m-%dT%H:%M:%SZ)
registry=${CARGO_HOME:-$HOME/.cargo}/registry/src

# Checksum of a registry crate, from the lock file.
checksum() {
  awk -v name="name = \"$1\"" -v version="version = \"$2\"" '
    /^\[\[package\]\]/ { n = v = 0 } $0 == name { n = 1 } $0 == version { v = 1 }
    n && v && /^checksum/ { gsub(/[" ]/, ""); sub(/checksum=/, ""); print; exit }' Cargo.lock
}

{
  printf 'SPDXVersion: SPDX-2.3\nDataLicense: CC0-1.0\nSPDXID: SPDXRef-DOCUMENT\nDocumentName: %s-%s\n' "$program" "$version"
  printf 'DocumentNamespace: urn:%s:%s:%s\n' "$program" "$version" "$(sha256sum Cargo.lock | cut -c1-64)"
  printf 'Creator: Tool: notices.sh\nCreated: %s\n' "$created"
  printf '%s\n' "$crates" | while IFS='|' read -r package licence source; do
    name=${package%% *}
    number=$(printf '%s' "$package" | sed 's/^[^ ]* v\([^ ]*\).*/\1/')
    id=SPDXRef-$(printf '%s-%s' "$name" "$number" | tr -c 'A-Za-z0-9.\n' '-')
    sum=$(checksum "$name" "$number")
    # Older crates write "MIT/Apache-2.0" for the SPDX form "MIT OR Apache-2.0".
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

# Many crates ship the same text: write each once, below its crates.
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
  printf 'wva %s is licensed under the Apache License 2.0; the text is in LICENSE in the same folder.\n' "$version"
  printf 'It is linked with crates that ship the texts below.\n'
  for of in "$texts"/*.of; do
    printf '\n====\n'
    cat "$of"
    printf '\n'
    cat "${of%.of}"
  done
} | gzip -9n > "$folder/NOTICES.gz"
cp LICENSE "$folder/LICENSE"
