#!/usr/bin/env bash
# Writes the table of values in the chart's README.md from the comments in values.yaml: one row for each key, in the
# order of the file. With --check it fails where the README differs from values.yaml, or the schema describes a key in other
# words. A key without a comment is an error.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/workload-variant-autoscaler"

# key<TAB>type<TAB>default<TAB>description. A default of several lines becomes one line, as YAML's flow style.
rows() {
  awk '
    function fail(why) { printf "values.yaml:%d: %s\n", NR, why > "/dev/stderr"; failed = 1; exit 1 }
    function depth_of(line) { match(line, /[^ ]/); return RSTART - 1 }
    # The lines of the block from `at` on, as flow style; `at` is then behind them.
    function flow(   depth, text, line, list) {
      depth = depth_of(block[at]); list = block[at] ~ /^ *- /
      while (at <= lines && depth_of(block[at]) == depth) {
        line = substr(block[at], depth + 1)
        text = text (text == "" ? "" : ", ")
        if (list && line ~ /^- *[A-Za-z]+:/) { block[at] = substr(block[at], 1, depth) "  " substr(line, 3); text = text flow() }
        else if (list) { text = text substr(line, 3); at++ }
        else if (line ~ /: /) { text = text line; at++ }
        else { at++; text = text line " " flow() }
      }
      return list ? "[" text "]" : "{" text "}"
    }
    function row(   type) {
      if (name == "") return
      if (lines > 0) { at = 1; value = flow() }
      type = "string"
      if (value ~ /^(true|false)$/) type = "bool"
      else if (value == "null") type = "bool or null"
      else if (value ~ /^-?[0-9]+$/) type = "int"
      else if (value ~ /^-?[0-9]*\.[0-9]+$/) type = "float"
      else if (value ~ /^\[/) type = "list"
      else if (value ~ /^\{/) type = "object"
      else if (value !~ /^"/) value = "\"" value "\""
      if (value == "\"auto\"" && name ~ /enabled$/) type = "string or bool"
      printf "%s\t%s\t%s\t%s\n", name, type, value, description
      name = ""; lines = 0
    }
    # Inside the default of the last key.
    name != "" && value == "" && /^ *[^ #]/ && (depth_of($0) > key_depth || (depth_of($0) == key_depth && /^ *- /)) { block[++lines] = $0; next }
    /^ *# -- / { row(); sub(/^ *# -- /, ""); comment = $0; next }
    /^ *# / && comment != "" { sub(/^ *# /, ""); comment = comment " " $0; next }
    /^ *#/ || /^ *$/ { row(); comment = ""; next }
    {
      row()
      if (!match($0, /^ *[A-Za-z]+:/)) fail("a line that is neither comment nor key: " $0)
      key = substr($0, 1, RLENGTH - 1); value = substr($0, RLENGTH + 1); sub(/^ */, "", value)
      key_depth = depth_of(key); sub(/^ */, "", key)
      path[key_depth / 2] = key
      if (value == "" && comment == "") next
      name = path[0]; for (i = 1; i <= key_depth / 2; i++) name = name "." path[i]
      if (comment == "") fail("no comment \"# -- ...\" above " name)
      description = comment; comment = ""
    }
    END { if (failed) exit 1; row() }' values.yaml
}

readme() {
  awk '/<!-- values: begin -->/ { print; exit } { print }' README.md
  printf '\n| Key | Type | Default | Description |\n|-----|------|---------|-------------|\n'
  awk -F '\t' '{ printf "| %s | %s | `%s` | %s |\n", $1, $2, $3, $4 }' <<<"$rows"
  printf '\n'
  awk '/<!-- values: end -->/ { from = 1 } from { print }' README.md
}

rows=$(rows)
wanted=$(readme)
case ${1:-} in
  "") printf '%s\n' "$wanted" > README.md ;;
  --check)
    diff -u README.md <(printf '%s\n' "$wanted") || { echo "README.md of the chart is not what values.yaml says: run charts/readme.sh and commit the result" >&2; exit 1; }
    while IFS=$'\t' read -r key _ _ description; do
      grep -qF "\"description\": \"$description\"" values.schema.json || { echo "values.schema.json does not describe $key as values.yaml does: $description" >&2; exit 1; }
    done <<<"$rows" ;;
  *) echo "usage: $0 [--check]" >&2; exit 2 ;;
esac
