#!/bin/sh
# Builds the release program of an image from the lock file, without debug paths. The same sources and toolchain give the
# same bytes in any folder. Run in the workspace.
# Usage: build.sh manager|wva
set -eu
# Keep paths of this machine out of panic messages.
cargo_home=${CARGO_HOME:-$HOME/.cargo}
RUSTFLAGS="--remap-path-prefix=$PWD=/src --remap-path-prefix=$cargo_home=/cargo"
# Packed relative relocations take a fiftieth of the space; glibc 2.36 and later, as in the base image, reads them.
RUSTFLAGS="$RUSTFLAGS -Clink-arg=-Wl,-z,pack-relative-relocs"
# One time for both builds and every commit: a changed time would recompile C sources.
export RUSTFLAGS CARGO_INCREMENTAL=0 SOURCE_DATE_EPOCH=0
# The C sources of aws-lc contain file names too.
export CFLAGS="-ffile-prefix-map=$cargo_home=/cargo -ffile-prefix-map=$PWD=/src"
# The manager without the crates of the commands.
features=
[ "${1:?usage: build.sh manager|wva}" = wva ] || features=--no-default-features
# shellcheck disable=SC2086 # no argument without a feature flag
exec cargo build --locked --release --package wva --bin "$1" $features
