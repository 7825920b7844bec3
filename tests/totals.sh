#!/usr/bin/env bash
# Adds up all results in test logs: "12 passed, 0 failed, 1 skipped". Fails if a test failed or none ran.
set -uo pipefail
cat "$@" | awk '/^test result:/ { passed += $4; failed += $6; skipped += $8 }
  END { printf "%d passed, %d failed, %d skipped\n", passed, failed, skipped; exit passed == 0 || failed > 0 }'
