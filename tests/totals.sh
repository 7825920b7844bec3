#!/usr/bin/env bash
# Adds up all results in test logs: "12 passed, 0 failed, 1 skipped". Fails if a test failed or none ran. With
# --failures, first the beginning of what each failed test said: the end of a long output is what people see.
set -uo pipefail
if [ "${1:-}" = --failures ]; then
  shift
  cat "$@" | awk '/^---- .* stdout ----$/ { left = 9; print "failed: " $2; next }
    /^(----|failures:|test result:)/ { left = 0 }
    left > 0 && NF { left--; print "    " $0 }'
fi
cat "$@" | awk '/^test result:/ { passed += $4; failed += $6; skipped += $8 }
  END { printf "%d passed, %d failed, %d skipped\n", passed, failed, skipped; exit passed == 0 || failed > 0 }'
