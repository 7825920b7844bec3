#!/usr/bin/env bash
# Checks the words of tracked text, the names of types, the length of test names, the first words of doc comments, and the length
# of sentences in docs.
#
#   tests/prose.sh [PATH...]           what is found, as file:line
#   tests/prose.sh --count [PATH...]   how much is found in each top folder
# shellcheck disable=SC2016 # awk programs
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit
count=
if [ "${1:-}" = --count ]; then count=1; shift; fi
text=('*.rs' '*.md' '*.yaml' '*.yml' '*.tpl' '*.txt' '*.sh' '*.toml' '*.json' Makefile Dockerfile)
paths=("$@")
[ ${#paths[@]} -gt 0 ] || paths=(.)
lists=tests/prose

# Tracked files of the given globs under the paths.
files() { git ls-files -- "${paths[@]}" | grep -E "$1" | grep -vE '^(tests/prose/|Cargo.lock)' || true; }

words() {
  local pattern
  pattern=$(grep -v '^#' "$lists/words.txt" | cut -f1 | sed 's/^/(?:/; s/$/)/' | paste -sd'|')
  git grep -nIiP "\\b(?:$pattern)\\b" -- "${text[@]}" |
    awk -F: -v OFS=: '{ file = $1; line = $2; sub(/^[^:]*:[^:]*:/, ""); print file, line, "word: " $0 }'
}

names() {
  local pattern
  pattern=$(grep -v '^#' "$lists/names.txt" | tr -s ' \n' '|' | sed 's/^|//; s/|$//')
  git grep -nP "\\b(?:struct|enum|trait|type|union) (?:$pattern)\\b" -- '*.rs' | sed -E 's/^([^:]*:[0-9]+):/\1:name: /'
}

# A test name has at most 60 characters.
tests() {
  files '\.rs$' | xargs -r awk '
    FNR == 1 { marked = 0 }
    /^ *#\[(tokio::)?test/ { marked = 1; next }
    marked && match($0, /fn [a-z0-9_]+/) { if (RLENGTH - 3 > 60) print FILENAME ":" FNR ":test name over 60 characters: " $0; marked = 0 }'
}

# A doc comment begins with its subject, not in the middle of a thought. Of the product more words are refused than of tests.
comments() {
  files '\.rs$' | xargs -r awk '
    FNR == 1 { within = 0; is_product = FILENAME !~ /(^|\/)(tests|benches|examples|testing|fixture)(\.rs$|\/)/ }
    within || !match($0, /^ *\/\/\/ /) { within = /^ *\/\/\//; next }
    { within = 1; first = $2; sub(/,$/, "", first) }
    first ~ /^(Then|And|Or|But|So|Else|Otherwise|Also|Even)$/ ||
    is_product && first ~ /^(Its|Their|Of|Those|That|Which|By|Like|With|Without|As|If|When|Not|It)$/ { print FILENAME ":" FNR ":doc comment without a subject: " $0 }'
}

# A sentence in docs has at most 30 words. Code, tables and links targets do not count.
sentences() {
  files '\.md$' | xargs -r awk '
    function ended(  n, parts, i, words, all) {
      gsub(/\]\([^)]*\)/, "]", text); gsub(/`[^`]*`/, "code", text)
      n = split(text, parts, /[.!?:;]+["\x27)*_]*[ \n]+/)
      for (i = 1; i <= n; i++) { words = split(parts[i], all, /[ \n]+/); if (words > 31) print name ":" start ":sentence of " words " words: " substr(parts[i], 1, 90) }
      text = ""
    }
    FNR == 1 { ended(); name = FILENAME; code = 0 }
    /^ *```/ { ended(); code = !code; next }
    code || /^ *\|/ || /^ *</ || /^#/ { ended(); next }
    /^ *$/ || /^ *([-*]|[0-9]+\.) / { ended() }
    { if (text == "") start = FNR; text = text " " $0 }
    END { ended() }'
}

excepted() {
  awk -F'\t' -v list="$lists/exceptions.txt" '
    BEGIN { while ((getline line < list) > 0) if (line !~ /^#/ && split(line, f, "\t") >= 3) { path[++n] = f[1]; expr[n] = f[2] } }
    { file = $0; sub(/:.*/, "", file)
      for (i = 1; i <= n; i++) if (index(file, path[i]) == 1 && $0 ~ expr[i]) next
      print }'
}

# What is found under the paths.
under() {
  if [ "${paths[*]}" = . ]; then cat; else grep -E "^($(IFS='|'; echo "${paths[*]}"))" || true; fi
}

found=$({ words; names; tests; comments; sentences; } | under | excepted | sort -t: -k1,1 -k2,2n)
[ -n "$found" ] || exit 0
if [ -n "$count" ]; then
  cut -d: -f1,3 <<< "$found" | sed -E 's|^([^/:]*)/?([^/:]*)[^:]*:([a-z]+).*|\1/\2 \3|' | sort | uniq -c
else
  echo "$found"
  echo "prose: $(wc -l <<< "$found") places; tests/prose/words.txt says what to write instead" >&2
fi
exit 1
