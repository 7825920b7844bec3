#!/usr/bin/env bash
# Makes a release of a made-up owner with deploy/release.sh, publishes it to a registry in memory and a folder, and installs
# it from there: chart by digest, program by checksum, Kustomize. Checks links, names and the metadata for Artifact Hub,
# and that a placeholder that is left fails the release.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
out=$(mktemp -d)
registry=
trap '[ -z "$registry" ] || kill "$registry"; rm -rf "$out"' EXIT
export HELM_CONFIG_HOME=$out/helm HELM_CACHE_HOME=$out/helm HELM_DATA_HOME=$out/helm
unset KUBECONFIG HELM_NAMESPACE ARTIFACTHUB_REPOSITORY_ID
tools=$(tests/testbed/tools/build.sh helm kubectl registry)
tool() { sed -n "s/^$1=//p" <<<"$tools"; }
HELM=$(tool helm)
export HELM
faults=0
fault() { printf 'release: %s\n' "$*" >&2; faults=$((faults + 1)); }
holds() { grep -qF -- "$2" <<<"$1" || fault "$3: lacks $2"; }

# An owner with capitals, which an image must not have, and a name that is not wva.
repository=Made-Up/wva-fork version=1.2.3-rc.1 digest=sha256:$(printf 'a%.0s' {1..64}) cli_digest=sha256:$(printf 'b%.0s' {1..64})
image=ghcr.io/made-up/wva-fork@$digest cli_image=ghcr.io/made-up/wva-fork-cli@$cli_digest
notes=$out/source

echo "== the release"
for target in x86_64-unknown-linux-musl aarch64-unknown-linux-musl x86_64-apple-darwin aarch64-apple-darwin; do
  mkdir -p "$out/programs/program-$target"
  # shellcheck disable=SC2016 # a script
  printf '#!/bin/sh\necho "wva of %s: $*"\n' $target > "$out/programs/program-$target/wva"
  chmod +x "$out/programs/program-$target/wva"
  echo SPDX > "$out/programs/program-$target/sbom.spdx"
done
mkdir "$out/programs/image-amd64"
echo SPDX > "$out/programs/image-amd64/wva-image-linux-amd64.spdx"
# A copy, because the changelog has no such version, and to leave placeholders in it.
mkdir "$notes"
git ls-files -z --cached --others --exclude-standard -- charts config crds deploy docs README.md SECURITY.md LICENSE | xargs -0 cp --parents --target-directory "$notes"
printf '# Changelog\n\n## [%s]\n\n- A [link](docs/guides/upgrade.md#x).\n' $version > "$notes/CHANGELOG.md"
release() { ARTIFACTHUB_REPOSITORY_ID=${uuid:-} "$notes/deploy/release.sh" "$repository" $version "$digest" "$cli_digest" "$@"; }
uuid=01234567-89ab-cdef-0123-456789abcdef
release "$out/release" "$out/programs"
assets=$out/release/assets
expected="SHA256SUMS install-cli.sh krew.yaml
$(for target in x86_64-unknown-linux-musl aarch64-unknown-linux-musl x86_64-apple-darwin aarch64-apple-darwin; do echo "wva-$version-$target.spdx wva-$version-$target.tar.gz"; done)
wva-image-linux-amd64.spdx wva-$version-manifests.tar.gz workload-variant-autoscaler-$version.tgz"
diff <(tr ' ' '\n' <<<"$expected" | LC_ALL=C sort) <(find "$assets" -type f -printf '%f\n' | LC_ALL=C sort) || fault "other assets than expected (see above)"
(cd "$assets" && sha256sum --check --quiet SHA256SUMS) || fault "SHA256SUMS"
release "$out/again" "$out/programs"
cmp "$assets/wva-$version-manifests.tar.gz" "$out/again/assets/wva-$version-manifests.tar.gz" || fault "two runs give two archives"
[ "$(grep -v '^#' "$out/release/artifacthub-repo.yml")" = "repositoryID: $uuid" ] || fault "artifacthub-repo.yml"
holds "$(cat "$out/release/notes.md")" "https://github.com/$repository/blob/v$version/docs/guides/upgrade.md#x" "release notes"
holds "$(cat "$out/release/notes.md")" "oci://ghcr.io/made-up/charts/workload-variant-autoscaler --version $version" "release notes"

echo "== the chart, from a registry"
: > "$out/registry.log"
# Port 0: the registry prints the free port that it took.
"$(tool registry)" -port 0 2> "$out/registry.log" &
registry=$!
for _ in $(seq 100); do
  port=$(sed -n 's/.*serving on port //p' "$out/registry.log")
  [ -z "$port" ] || break
  sleep 0.1
done
charts=oci://localhost:$port/made-up/charts
"$HELM" push "$assets/workload-variant-autoscaler-$version.tgz" "$charts" --plain-http > "$out/push.log" 2>&1 || fault "helm push: $(cat "$out/push.log")"
grep -q '^Digest: sha256:' "$out/push.log" || fault "helm push prints no digest for the workflow"
# The command of README.md, with the registry's address.
install=$(sed -e ':a' -e '/\\$/N; s/\\\n *//; ta' "$out/release/tree/README.md" | sed -n 's/^helm upgrade --install \(.*oci:.*\)/\1/p')
holds "$install" "oci://ghcr.io/made-up/charts/workload-variant-autoscaler" README.md
read -ra words <<<"${install/oci:\/\/ghcr.io\/made-up\/charts/$charts}"
"$HELM" template "${words[@]/--create-namespace/--include-crds}" --version $version --plain-http > "$out/render.yaml" 2> "$out/render.err" || fault "the command of README.md: $(cat "$out/render.err")"
images=$(sed -n 's/^ *image: //p' "$out/render.yaml" | sort -u)
[ "$images" = "\"$cli_image\"
\"$image\"" ] || fault "the chart renders $images"
holds "$(cat "$out/render.yaml")" "app.kubernetes.io/version: \"$version\"" "the chart"
holds "$(cat "$out/render.yaml")" "name: variantautoscalings.llmd.ai" "the chart"
"$HELM" template wva "$charts/workload-variant-autoscaler" --version $version --plain-http --set wva.prometheus.baseURL=http://p,wva.metrics.prometheusRule.enabled=true,wva.metrics.grafanaDashboard.enabled=true > "$out/alerts.yaml" 2> "$out/alerts.err" || fault "alerts: $(cat "$out/alerts.err")"
holds "$(cat "$out/alerts.yaml")" "runbook_url: \"https://github.com/$repository/blob/v$version/docs/operations/runbook.md#" "the alerts"
holds "$(cat "$out/alerts.yaml")" "https://github.com/$repository/blob/v$version/docs/reference/events-conditions-reasons.md" "the dashboards"
"$HELM" pull "$charts/workload-variant-autoscaler" --version $version --plain-http --untar --untardir "$out/pulled/charts" > /dev/null 2>&1 || fault "helm pull"
chart=$out/pulled/charts/workload-variant-autoscaler
# An image of your own replaces repository and tag.
own=$("$HELM" template wva "$chart" --set wva.prometheus.baseURL=http://p,image.repository=mine/wva,image.tag=v1)
holds "$own" 'image: "mine/wva:v1"' "an own image"
holds "$own" "image: \"mine/wva-cli@$cli_digest\"" "the commands for an own image"
for profile in "$chart"/values-*.yaml; do
  "$HELM" template wva "$chart" -f "$profile" --set wva.prometheus.baseURL=http://p,llmd.namespace=n > /dev/null 2> "$out/profile.err" || fault "$(basename "$profile"): $(cat "$out/profile.err")"
done
"$HELM" lint "$chart" --strict --quiet --set wva.prometheus.baseURL=http://p > "$out/lint" 2>&1 || fault "helm lint: $(cat "$out/lint")"

echo "== Artifact Hub"
lint() { "$HELM" template lint tests/chart/artifacthub --set-file chart="$1" > /dev/null 2> "$out/lint"; }
lint "$chart/Chart.yaml" || fault "Chart.yaml: $(cat "$out/lint")"
holds "$(cat "$chart/Chart.yaml")" 'artifacthub.io/prerelease: "true"' "a release candidate"
while IFS='|' read -r from to words; do
  sed "s|$from|$to|" "$chart/Chart.yaml" > "$out/Chart.yaml"
  if lint "$out/Chart.yaml"; then fault "Artifact Hub: $from as $to passes"; else grep -qF -- "$words" "$out/lint" || fault "Artifact Hub: $to: $(cat "$out/lint")"; fi
done <<'WRONG'
category: ai-machine-learning|category: ai|is not one of
Capabilities: Auto Pilot|Capabilities: Autopilot|is not one of
io/operator: "true"|io/operator: "yes"|is not one of
kind: added|kind: new|is unknown
@sha256:.*|:latest|is not scanned
- name: wva$|- title: wva|no name in
url: https://|url: http://|is not an https URL
artifacthub.io/links|artifacthub.io/link|not an annotation
displayName: .*||no displayName
WRONG

echo "== links of the chart and the documents"
broken=$(grep -rhoE "https://(github\.com|raw\.githubusercontent\.com)/[^ )\"'>#\`]*" "$chart" "$out/release/tree" "$assets/krew.yaml" "$assets/install-cli.sh" "$out/release/notes.md" | sort -u |
  sed -nE "s#^https://(github\.com/$repository/(blob|tree)|raw\.githubusercontent\.com/$repository)/##p" | while IFS= read -r link; do
    [[ $link == "v$version/"* ]] && { [ -e "${link#"v$version/"}" ] || [ -d "${link#"v$version/"}" ]; } || echo "$link"
  done)
[ -z "$broken" ] || fault "links without a target: $broken"
relative=$(grep -oE '\]\([^):]*\)' "$chart/README.md" | grep -v '](#' || true)
[ -z "$relative" ] || fault "links of the chart's README that only work in the repository: $relative"
! grep -rn 'No release has been published' "$out/release/tree" "$chart" || fault "a released page says that no release is published"

echo "== the program, by checksum"
host=$(uname -m | sed 's/arm64/aarch64/')
bin=$out/bin
run_cli() { WVA_URL=file://$1 WVA_BIN=$bin sh "$assets/install-cli.sh"; }
run_cli "$assets" > "$out/cli.log" || fault "install-cli.sh: $(cat "$out/cli.log")"
holds "$("$bin/wva" x)" "wva of $host-" "the program"
mkdir "$out/mirror"
cp "$assets/wva-$version-"*.tar.gz "$out/mirror"
for archive in "$out/mirror"/*; do echo >> "$archive"; done
rm "$bin/wva"
if run_cli "$out/mirror" > /dev/null 2> "$out/cli.err"; then fault "install-cli.sh accepts a changed archive"; fi
holds "$(cat "$out/cli.err")" "nothing is installed" "install-cli.sh with a changed archive"
[ ! -e "$bin/wva" ] || fault "install-cli.sh installs a changed archive"
# Each address and checksum of the plugin's manifest is that of an asset.
platforms=0
while read -r uri sum; do
  platforms=$((platforms + 1))
  [ "${uri%/*}" = "https://github.com/$repository/releases/download/v$version" ] || fault "krew.yaml: $uri"
  [ "$(sha256sum < "$assets/${uri##*/}" | cut -c1-64)" = "$sum" ] || fault "krew.yaml: checksum of $uri"
  tar -tzf "$assets/${uri##*/}" | grep -qx './wva' || fault "${uri##*/} has no wva"
done < <(sed -n 's/^ *uri: //p; s/^ *sha256: //p' "$assets/krew.yaml" | paste -d ' ' - -)
[ $platforms = 4 ] || fault "krew.yaml has $platforms platforms"
holds "$(cat "$assets/krew.yaml")" "version: v$version" krew.yaml

echo "== Kustomize and deploy/install.sh, from the archive"
tar -xzf "$assets/wva-$version-manifests.tar.gz" -C "$out"
manifests=$out/wva-$version
"$(tool kubectl)" kustomize "$manifests/config/base" > "$out/base.yaml" || fault "config/base does not build"
images=$(sed -n 's/^ *image: //p' "$out/base.yaml" | sort -u)
[ "$images" = "$image" ] || fault "config/base has the image $images"
grep -qF "image: $cli_image" "$manifests/deploy/examples/demo.yaml" || fault "deploy/examples/demo.yaml has another image"
[ -x "$manifests/deploy/install.sh" ] || fault "deploy/install.sh is not executable"
# The overlay of docs/getting-started/install.md replaces the image of the release.
mkdir "$manifests/config/overlay"
sed -n '/^kind: Kustomization$/,/^```$/p' "$manifests/docs/getting-started/install.md" | sed '/^```$/d; s/^components:.*//; s/REGISTRY/registry.test/' > "$manifests/config/overlay/kustomization.yaml"
"$(tool kubectl)" kustomize "$manifests/config/overlay" > "$out/overlay.yaml" || fault "the overlay of install.md does not build"
images=$(sed -n 's/^ *image: //p' "$out/overlay.yaml" | sort -u)
[ "$images" = registry.test/wva:$version ] || fault "the overlay of install.md has the image $images"

echo "== refusals"
refused() {
  local words=$1
  shift
  rm -rf "$out/refused"
  if "$@" > /dev/null 2> "$out/err"; then fault "is not refused: $*"; else grep -qF -- "$words" "$out/err" || fault "$*: refused without \"$words\": $(cat "$out/err")"; fi
}
refused "is not a repository" "$notes/deploy/release.sh" OWNER $version "$digest" "$cli_digest" "$out/refused"
refused "is not a repository" "$notes/deploy/release.sh" 'a b' $version "$digest" "$cli_digest" "$out/refused"
refused "is not a version" "$notes/deploy/release.sh" acme v1 "$digest" "$cli_digest" "$out/refused"
refused "'latest' is not the digest" "$notes/deploy/release.sh" acme $version latest "$cli_digest" "$out/refused"
refused "'latest' is not the digest" "$notes/deploy/release.sh" acme $version "$digest" latest "$out/refused"
refused "is not empty" release "$out/release"
mkdir "$out/empty"
refused "is not a program" release "$out/refused" "$out/empty"
uuid=REPOSITORY refused "not a UUID" release "$out/refused"
# A placeholder of each kind, in each thing that ships. The release lists all of them, with file and line.
while IFS='|' read -r file line; do
  cp "$notes/$file" "$out/before"
  printf '%s\n' "$line" >> "$notes/$file"
  refused "$file:$(wc -l < "$notes/$file"):" release "$out/refused"
  cat "$out/before" > "$notes/$file"
done <<'LEFT'
deploy/install.sh|# image: wva:1
deploy/examples/load.yaml|# mail: team@example.com
charts/workload-variant-autoscaler/values-ha.yaml|# https://github.com/_OWNER_/wva vVERSION
config/base/services.yaml|# SHA256-x
docs/guides/upgrade.md|See localhost/other and REPLACE_ME.
charts/workload-variant-autoscaler/templates/services.yaml|# TODO
LEFT
printf 'x https://github.com/OWNER/wva\n' >> "$out/programs/program-aarch64-apple-darwin/wva"
refused "program-aarch64-apple-darwin/wva" release "$out/refused" "$out/programs"

[ $faults = 0 ] || { echo "release: $faults faults" >&2; exit 1; }
echo "release: chart, program, plugin and manifests of $repository $version are right"
