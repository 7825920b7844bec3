#!/usr/bin/env bash
# Opens the site of docs/ in headless Chromium: index, search, a page of tables on a narrow screen, and diagrams. Fails
# on a script error, a search without a hit, a page wider than the screen, or a diagram that is not drawn. Screenshots
# go to target/docs-screenshots. CHROMIUM names the browser.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
chromium=${CHROMIUM:-chromium}
command -v "$chromium" > /dev/null ||
  { echo "$chromium is missing: install it (apt-get install chromium), or name a browser in CHROMIUM" >&2; exit 1; }
tests/docs.sh
target=${CARGO_TARGET_DIR:-target}
site=$(cd "$target/docs" && pwd)
shots=$target/docs-screenshots
mkdir -p "$shots"
shots=$(cd "$shots" && pwd)
work=$(mktemp -d)
cp tests/docs-browser.html "$site/check.html"
python3 -u -m http.server --bind 127.0.0.1 --directory "$site" 0 > "$work/server.log" 2>&1 &
server=$!
trap 'kill $server; rm -rf "$work" "$site/check.html"' EXIT
port=
for _ in $(seq 50); do
  port=$(sed -n 's/.* port \([0-9]*\) .*/\1/p' "$work/server.log" | head -n 1)
  [ -z "$port" ] || break
  sleep 0.1
done
url=http://127.0.0.1:${port:?the server of the site did not start}

# browse ARGUMENT...: one run of the browser with a new profile and without connections of its own.
browse() {
  timeout 120 "$chromium" --headless --no-sandbox --disable-gpu --disable-quic --no-first-run --hide-scrollbars \
    --disable-background-networking --disable-component-update --disable-sync --user-data-dir="$work/profile" \
    --enable-logging=stderr "$@" 2> "$work/browser.log" || { cat "$work/browser.log" >&2; return 1; }
}

browse --virtual-time-budget=60000 --dump-dom "$url/check.html" > "$work/page.html"
! grep 'Uncaught' "$work/browser.log" || { echo "FAILED no script error" >&2; exit 1; }
python3 - "$work/page.html" << 'PYTHON'
import html, json, re, sys

found = re.search(r'<pre id="result">(.*?)</pre>', open(sys.argv[1]).read(), re.S)
results = json.loads(html.unescape(found.group(1))) if found and found.group(1) else []
seen = {result["name"]: result for result in results}
checks = [
    ("every page was opened", set(seen) == {"index", "search", "narrow", "diagrams"}),
    ("no script error", all(not result["errors"] for result in results)),
    ("the index has its heading", seen.get("index", {}).get("heading") == "Documentation"),
    ("the index lists the chapters", seen.get("index", {}).get("chapters", 0) > 40),
    ("search finds pages", seen.get("search", {}).get("hits", 0) > 0),
    ("a page fits a narrow screen", seen.get("narrow", {}).get("overflow", 1) <= 0),
    ("diagrams are drawn", seen.get("diagrams", {}).get("drawn", 0) == 2),
]
for name, holds in checks:
    print(f"{'ok    ' if holds else 'FAILED'} {name}")
if not all(holds for _, holds in checks):
    sys.exit(json.dumps(results, indent=1))
PYTHON
for width in 1280 390; do
  browse --window-size="$width,900" --virtual-time-budget=10000 --screenshot="$shots/index-$width.png" "$url/index.html"
done
echo "screenshots: $shots"
