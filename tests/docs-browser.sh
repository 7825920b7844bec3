#!/usr/bin/env bash
# Opens the site of docs/ in headless Chromium: index, search, tables on a narrow and on a wide screen, a rule, and
# diagrams. Fails on a script error, a search without a hit, a page or table wider than the screen, a message that is cut, or
# a diagram that is not drawn. Screenshots in light and dark go to target/docs-screenshots. CHROMIUM names the browser.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. tests/browser.sh
tests/docs.sh
site=$(cd "$target/docs" && pwd)
shots=$(shots docs)
cp tests/docs-browser.html "$site/check.html"
serve "$site" "rm '$site/check.html'"

# Every page but those of single rules, which are alike.
pages=$(cd "$site" && find . -name '*.html' ! -name print.html ! -name toc.html ! -name check.html ! -name 404.html ! -name 'WVA-*' | sort | paste -sd,)
browse --virtual-time-budget=90000 --dump-dom "$url/check.html?pages=$pages" > "$work/page.html"
! grep . "$work/console.log" || { echo "FAILED no message of a script" >&2; exit 1; }
python3 - "$work/page.html" << 'PYTHON'
import html, json, re, sys

found = re.search(r'<pre id="result">(.*?)</pre>', open(sys.argv[1]).read(), re.S)
results = json.loads(html.unescape(found.group(1))) if found and found.group(1) else []
seen = {result["name"]: result for result in results}
every = lambda name, holds: any(r["name"] == name for r in results) and all(holds(r) for r in results if r["name"] == name)
checks = [
    ("every page was opened", set(seen) == {"index", "search", "narrow", "rule", "pages"}),
    ("no script error", all(not result["errors"] for result in results)),
    ("the index has its heading", seen.get("index", {}).get("heading") == "Documentation"),
    ("the index lists the chapters", seen.get("index", {}).get("chapters", 0) > 40),
    ("search finds pages", seen.get("search", {}).get("hits", 0) > 0),
    ("pages fit a narrow screen", every("narrow", lambda page: page["overflow"] <= 0)),
    ("tables of up to five columns fit a narrow screen", every("narrow", lambda page: page["cut"] == 0)),
    ("the message of a rule is not cut", every("rule", lambda page: page["blocks"] > 0 and page["cut"] == 0)),
    ("diagrams are drawn", every("pages", lambda page: page["missing"] == 0 and not page["syntax"])),
    ("pages have diagrams", sum(page["diagrams"] for page in results if page["name"] == "pages") > 5),
    ("tables fit a wide screen", every("pages", lambda page: page["wide"] == 0)),
]
for name, holds in checks:
    print(f"{'ok    ' if holds else 'FAILED'} {name}")
if not all(holds for _, holds in checks):
    sys.exit(json.dumps(results, indent=1))
PYTHON
for page in index concepts/overview guides/connect-autoscaler reference/rules/WVA-VA-003 reference/cli development/evidence/traffic; do
  for width in 1280 390; do
    shot=$shots/${page//\//-}-$width
    browse --window-size="$width,2000" --virtual-time-budget=10000 --screenshot="$shot-light.png" "$url/$page.html"
    browse --window-size="$width,2000" --virtual-time-budget=10000 --force-dark-mode --screenshot="$shot-dark.png" "$url/$page.html"
  done
done
echo "screenshots: $shots"
