#!/usr/bin/env bash
# Opens the site of docs/ in headless Chromium: index, search, a page of tables on a narrow screen, and diagrams. Fails
# on a script error, a search without a hit, a page wider than the screen, or a diagram that is not drawn. Screenshots
# go to target/docs-screenshots. CHROMIUM names the browser.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. tests/browser.sh
tests/docs.sh
site=$(cd "$target/docs" && pwd)
shots=$(shots docs)
cp tests/docs-browser.html "$site/check.html"
serve "$site" "rm '$site/check.html'"

browse --virtual-time-budget=60000 --dump-dom "$url/check.html" > "$work/page.html"
! grep . "$work/console.log" || { echo "FAILED no message of a script" >&2; exit 1; }
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
