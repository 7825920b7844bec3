#!/usr/bin/env bash
# The sum of all results in logs of tests: "12 passed, 0 failed, 1 skipped". Fails where a test failed or none ran.
set -uo pipefail
cat "$@" | awk '/^test result:/ { passed += $4; failed += $6; skipped += $8 }
  END { printf "%d passed, %d failed, %d skipped\n", passed, failed, skipped; exit passed == 0 || failed > 0 }'
