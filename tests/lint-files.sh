#!/usr/bin/env bash
# Runs shellcheck, hadolint and actionlint, pinned and installed once into the cache of tools. Python 3 installs those of
# tests/linters.txt; Go builds actionlint.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
cache=${WVA_TESTBED_CACHE:-${HOME:?HOME is not set}/.cache/wva-testbed}
linters=$cache/linters-$(sha256sum tests/linters.txt | cut -c1-16)
if [ ! -e "$linters/done" ]; then
  python3 -c "import venv, ensurepip" 2> /dev/null || { echo "lint-files: skipped: install Python 3 with venv, which installs the linters of tests/linters.txt" >&2; exit 0; }
  rm -rf "$linters"
  python3 -m venv "$linters"
  "$linters/bin/pip" install --quiet --disable-pip-version-check --requirement tests/linters.txt
  touch "$linters/done"
fi

echo "== shell scripts"
mapfile -t scripts < <(git ls-files --cached --others --exclude-standard '*.sh' .ci/run | grep -v '^tests/testbed/src/')
"$linters/bin/shellcheck" --external-sources "${scripts[@]}"
"$linters/bin/shellcheck" --shell sh tests/testbed/src/kubelet/container.sh
echo "== Dockerfile"
"$linters/bin/hadolint" Dockerfile
echo "== workflows"
actionlint=$(tests/testbed/tools/build.sh actionlint)
"${actionlint#*=}" -shellcheck "$linters/bin/shellcheck" -pyflakes ""
echo "lint-files: ${#scripts[@]} scripts, the Dockerfile and the workflows: no findings"
