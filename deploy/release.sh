#!/usr/bin/env bash
# Writes what a release ships into OUT: assets/ (chart, archives of the programs, krew.yaml, install-cli.sh, manifests,
# SHA256SUMS), notes.md, and tree/, the files that the manifests archive has. Puts in owner, version and digest of the
# image. Fails, with file and line, where a placeholder is left.
#
#   deploy/release.sh OWNER[/NAME] VERSION sha256:DIGEST sha256:DIGEST OUT [PROGRAMS]
#
# The digests are those of the images of the manager and of the commands.
#
# With ARTIFACTHUB_REPOSITORY_ID it also writes artifacthub-repo.yml.
#
# PROGRAMS has a folder program-TARGET for each target platform, with wva, its licences and sbom.spdx, and the SBOMs of
# the image as image-ARCH/*.spdx. Without it the release has no archives, SBOMs, krew.yaml and install-cli.sh.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
usage() { echo "usage: release.sh OWNER[/NAME] VERSION sha256:DIGEST sha256:DIGEST OUT [PROGRAMS]" >&2; exit 2; }
fail() { printf 'release.sh: %s\n' "$*" >&2; exit 1; }
[ $# -ge 5 ] || usage
repository=$1 version=$2 digest=$3 cli_digest=$4 out=$5 programs=${6:-}
case $repository in */*) ;; *) repository=$repository/wva ;; esac
[[ $version =~ ^[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]+)?$ ]] || fail "'$version' is not a version such as 1.2.3 or 1.2.3-rc.1"
for one in "$digest" "$cli_digest"; do
  [[ $one =~ ^sha256:[0-9a-f]{64}$ ]] || fail "'$one' is not the digest of an image"
done
image=ghcr.io/${repository,,}
pinned=$image@$digest
helm=${HELM:-helm}
targets="x86_64-unknown-linux-musl aarch64-unknown-linux-musl x86_64-apple-darwin aarch64-apple-darwin"
[ ! -e "$out" ] || [ -z "$(ls -A "$out")" ] || fail "$out is not empty"
mkdir -p "$out/assets" "$out/tree"
out=$(cd "$out" && pwd)
assets=$out/assets tree=$out/tree
chart=charts/workload-variant-autoscaler
old=$(sed -n 's/^appVersion: //p' "$root/$chart/Chart.yaml")
pages=https://github.com/$repository/blob/v$version

# Packs a folder so that the same files give the same archive.
pack() {
  tar --sort=name --owner=0 --group=0 --numeric-owner --mtime="@${SOURCE_DATE_EPOCH:-0}" -C "$2" -cf - "${@:3}" | gzip -n > "$1"
}

# Turns links relative to the root of the repository into addresses: links_from FILE [PATH FROM FILE TO ROOT/].
links_from() {
  local to=${2:-}
  sed -i -E "s#\]\(${to//./\\.}(\.?[A-Za-z_][^):]*)\)#]($pages/\1)#g" "$1"
}

copy_tree() {
  (cd "$root" && cp -R --parents $chart charts/readme.sh config crds/*.yaml deploy/install.sh deploy/examples \
    docs README.md SECURITY.md LICENSE "$tree")
  local placed
  mapfile -t placed < <(grep -rlIE 'OWNER|localhost/wva' "$tree")
  "$root/deploy/owner.sh" "$repository" "${placed[@]}"
  # The pages of this version, not those of the branch.
  mapfile -t placed < <(grep -rlIF "github" "$tree")
  sed -i -E "s#(github\.com/$repository/(blob|tree))/main#\1/v$version#g; s#(raw\.githubusercontent\.com/$repository)/main#\1/v$version#g" "${placed[@]}"
  mapfile -t placed < <(grep -rlIE "(wva:|[tT]ag: )$old" "$tree")
  sed -i -E "s#(wva:|[tT]ag: )${old//./\\.}#\1$version#g" "${placed[@]}"
}

edit_tree() {
  cd "$tree"
  sed -i -E "s#^(version|appVersion): .*#\1: $version#; s#^( +image: )[^ ]*-cli:.*#\1$image-cli@$cli_digest#; s#^( +image: )[^ @]*:[^ @]*\$#\1$pinned#" $chart/Chart.yaml
  [[ $version != *-* ]] || sed -i 's#^annotations:#&\n  artifacthub.io/prerelease: "true"#' $chart/Chart.yaml
  sed -i -E "/^image:/,/^[a-z]/ s#^  tag: .*#  tag: \"$digest\"#; /^test:/,/^[a-z]/ s#^    tag: .*#    tag: \"$cli_digest\"#" $chart/values.yaml
  sed -i -E "s#^( +)newTag: .*#\1digest: $digest#" config/base/kustomization.yaml
  sed -i -E "s#^( +image: )wva-cli:.*#\1$image-cli@$cli_digest#" deploy/examples/*.yaml
  # Paragraphs for readers of the repository: that no release is published yet, what OWNER stands for.
  { grep -rlF -- '<!-- not in a release: begin -->' . || true; } | xargs -r sed -i '/<!-- not in a release: begin -->/,/<!-- not in a release: end -->/d'
  charts/readme.sh
  rm charts/readme.sh
  links_from $chart/README.md ../../
  # docs/ ships too; other files at the root do not.
  sed -i -E "s#\]\(([A-Z]+\.md[^):]*)\)#]($pages/\1)#g" README.md SECURITY.md
  # Pages of docs/ reach each other; they reach the rest of the repository by its address.
  local page
  while IFS= read -r page; do
    links_from "$page" "$(dirname "${page#./}" | sed -E 's#[^/]+#..#g')/"
  done < <(find ./docs -name '*.md')
  cd "$root"
}

programs() {
  local target sum krew=$assets/krew.yaml cli=$assets/install-cli.sh
  cp "$root/deploy/krew/wva.yaml" "$krew"
  cp "$root/deploy/install-cli.sh" "$cli"
  sed -i '/^# Template: /d' "$krew" "$cli"
  "$root/deploy/owner.sh" "$repository" "$krew" "$cli"
  sed -i "s/VERSION/$version/g" "$krew" "$cli"
  for target in $targets; do
    [ -x "$programs/program-$target/wva" ] || fail "$programs/program-$target/wva is not a program"
    pack "$assets/wva-$version-$target.tar.gz" "$programs/program-$target" .
    sum=$(sha256sum < "$assets/wva-$version-$target.tar.gz" | cut -d ' ' -f 1)
    sed -i "s/SHA256-$target/$sum/" "$krew" "$cli"
    cp "$programs/program-$target/sbom.spdx" "$assets/wva-$version-$target.spdx"
  done
  cp "$programs"/image-*/*.spdx "$assets"
}

# Metadata for Artifact Hub, once the repository is registered there.
artifact_hub() {
  [[ $1 =~ ^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$ ]] || fail "ARTIFACTHUB_REPOSITORY_ID is '$1', not a UUID"
  sed "/^# Template: /d; s/^repositoryID: .*/repositoryID: $1/" "$root/charts/artifacthub-repo.yml" > "$out/artifacthub-repo.yml"
}

# The section of the changelog, and how to install this release.
notes() {
  cat <<TEXT
## Install

\`\`\`sh
helm upgrade --install workload-variant-autoscaler oci://ghcr.io/$(cut -d / -f 1 <<<"${repository,,}")/charts/workload-variant-autoscaler --version $version \\
  --namespace workload-variant-autoscaler-system --create-namespace --set wva.prometheus.baseURL=http://PROMETHEUS:9090
curl -fsSL https://github.com/$repository/releases/download/v$version/install-cli.sh | sh
\`\`\`

Images: \`$image:$version\`, \`$digest\`, and with the commands \`$image-cli:$version\`, \`$cli_digest\`. [Installation](docs/getting-started/install.md) covers Kustomize, upgrades and
removal; [the security policy](SECURITY.md) says how to verify a release.

TEXT
  "$root/deploy/release-notes.sh" "$version" "$root/CHANGELOG.md"
}

# Prints file and line of each placeholder: in text, and in the programs, which have the address of their rules.
placeholders() {
  local place='(^|[^A-Z_])OWNER([^A-Z_]|$)|localhost/[a-z]|REPLACE_?ME|CHANGE_?ME|TODO|FIXME|your-org|image: "?wva(-cli)?[:"]|SHA256-[a-z]|vVERSION|@example\.'
  (cd "$out" && grep -rnIE "$place" tree assets notes.md | sed 's#^tree/##' | cut -c1-200)
  [ -z "$programs" ] || grep -rlaE 'github\.com/OWNER|ghcr\.io/OWNER' "$programs"
}

copy_tree
edit_tree
[ -z "$programs" ] || programs
[ -z "${ARTIFACTHUB_REPOSITORY_ID:-}" ] || artifact_hub "$ARTIFACTHUB_REPOSITORY_ID"
notes > "$out/notes.md"
links_from "$out/notes.md"
left=$(placeholders) || true
[ -z "$left" ] || fail "placeholders are left:"$'\n'"$left"
"$helm" package "$tree/$chart" --destination "$assets" > /dev/null
render=$("$helm" template release "$assets/workload-variant-autoscaler-$version.tgz" --set wva.prometheus.baseURL=http://prometheus)
for one in "$pinned" "$image-cli@$cli_digest"; do
  grep -qF "image: \"$one\"" <<<"$render" || fail "the packaged chart does not render the image $one"
done
mv "$tree" "$out/wva-$version"
pack "$assets/wva-$version-manifests.tar.gz" "$out" "wva-$version"
mv "$out/wva-$version" "$tree"
(cd "$assets" && sha256sum -- * > SHA256SUMS)
