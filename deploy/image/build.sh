#!/bin/sh
# Builds the release program of the image: from the lock file alone, without debug paths, and the same bytes for the same
# sources and toolchain wherever they lie. Run in the workspace.
set -eu
# Paths of this machine would stand in panic messages.
cargo_home=${CARGO_HOME:-$HOME/.cargo}
RUSTFLAGS="--remap-path-prefix=$PWD=/src --remap-path-prefix=$cargo_home=/cargo"
# Addresses to set at the start, in a fiftieth of their room: glibc knows that form since 2.36, which is in the base image.
RUSTFLAGS="$RUSTFLAGS -Clink-arg=-Wl,-z,pack-relative-relocs"
# The same time in both builds and for every commit: the builds of C sources start anew where it has changed.
export RUSTFLAGS CARGO_INCREMENTAL=0 SOURCE_DATE_EPOCH=0
# The C sources of aws-lc name their files as well.
export CFLAGS="-ffile-prefix-map=$cargo_home=/cargo -ffile-prefix-map=$PWD=/src"
exec cargo build --locked --release --package wva --bin wva
