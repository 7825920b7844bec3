#!/usr/bin/env bash
# Adds up all results in test logs: "12 passed, 0 failed, 1 skipped". Fails if a test failed or none ran. With
# --failures, first the beginning and the end of what each failed test said: an error comes last, after a timeline.
set -uo pipefail
if [ "${1:-}" = --failures ]; then
  shift
  cat "$@" | awk '
    function end(at) {
      for (at = 1; at <= lines; at++) if (at <= 9 || at > lines - 9) print "    " said[at]; else if (at == 10) print "    ..."
      inside = lines = 0
    }
    /^---- .* stdout ----$/ { end(); inside = 1; print "failed: " $2; next }
    /^(failures:|test result:)/ { end() }
    inside && NF { said[++lines] = $0 }
    END { end() }'
fi
cat "$@" | awk '/^test result:/ { passed += $4; failed += $6; skipped += $8 }
  END { printf "%d passed, %d failed, %d skipped\n", passed, failed, skipped; exit passed == 0 || failed > 0 }'
