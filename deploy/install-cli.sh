#!/bin/sh
# Installs the program wva of release vVERSION for this machine, after a check of its SHA-256 checksum:
#
#   curl -fsSL https://github.com/OWNER/wva/releases/latest/download/install-cli.sh | sh
#
# WVA_BIN is the folder to install into (~/.local/bin), WVA_URL the address of the archives.
# Template: deploy/release.sh puts in OWNER, VERSION and SHA256-TARGET.
set -eu

fail() { printf 'install-cli.sh: %s\n' "$*" >&2; exit 1; }

# A function, so that a shell that reads half of this file runs nothing.
main() {
  url=${WVA_URL:-https://github.com/OWNER/wva/releases/download/vVERSION}
  bin=${WVA_BIN:-$HOME/.local/bin}
  case $(uname -s)-$(uname -m) in
    Linux-x86_64) target=x86_64-unknown-linux-musl wanted=SHA256-x86_64-unknown-linux-musl ;;
    Linux-aarch64 | Linux-arm64) target=aarch64-unknown-linux-musl wanted=SHA256-aarch64-unknown-linux-musl ;;
    Darwin-x86_64) target=x86_64-apple-darwin wanted=SHA256-x86_64-apple-darwin ;;
    Darwin-arm64) target=aarch64-apple-darwin wanted=SHA256-aarch64-apple-darwin ;;
    *) fail "no release for $(uname -s) on $(uname -m): build from source with cargo install --locked --path . --bin wva" ;;
  esac
  folder=$(mktemp -d)
  trap 'rm -rf "$folder"' EXIT
  archive=wva-VERSION-$target.tar.gz
  curl -fsSL -o "$folder/$archive" "$url/$archive" || fail "cannot download $url/$archive"
  if command -v sha256sum > /dev/null; then found=$(sha256sum < "$folder/$archive"); else found=$(shasum -a 256 < "$folder/$archive"); fi
  [ "${found%% *}" = "$wanted" ] || fail "$url/$archive has the SHA-256 checksum ${found%% *}, not $wanted: nothing is installed"
  tar -xzf "$folder/$archive" -C "$folder" ./wva
  mkdir -p "$bin"
  # Not over the old file, which may be running.
  mv "$folder/wva" "$bin/.wva.new"
  mv "$bin/.wva.new" "$bin/wva"
  echo "installed $bin/wva, VERSION for $target"
  case :$PATH: in *":$bin:"*) ;; *) echo "add $bin to your PATH" ;; esac
}

main
