#!/usr/bin/env bash
# Opens the report of a day in headless Chromium, in light and dark. Fails on a script error, a missing point or decision,
# text of the recording that runs as a script, or a page wider than a narrow screen. Screenshots go to
# target/report-screenshots. CHROMIUM names the browser.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. tests/browser.sh
wva=${WVA_PROGRAM:-$target/debug/wva}
shots=$(shots report)
site=$work/site
mkdir "$site"
cp tests/report-browser.html "$site/check.html"

# A day at a cycle of three minutes: a daily wave, two models, three variants, and a model that is a script.
python3 - > "$work/day.jsonl" << 'PYTHON'
import json, math

for cycle in range(480):
    minute = 3 * cycle
    load = 0.5 - 0.5 * math.cos(math.pi * minute / 720)
    replicas = 1 + round(5 * load)
    def variant(name, cost, current):
        pods = [{"pod": f"{name}-{i}", "kv": round(0.15 + 0.6 * load, 3), "queue": round(4 * load)} for i in range(current)]
        return {"name": name, "accelerator": name.upper(), "cost": cost, "current": current, "max": 8,
                "running": round(90 * load), "replicas": pods}
    models = [{"modelID": "meta/llama-3.1-8b", "namespace": "prod",
               "variants": [variant("a100", "40.0", replicas), variant("h100", "80.0", 1)]},
              {"modelID": "</script><script>injected=1</script>", "namespace": "test",
               "variants": [variant("l40s", "12.0", 2)]}]
    print(json.dumps({"now": f"2026-01-01T{minute // 60:02}:{minute % 60:02}:00Z",
                      "config": {"saturation": {"default": {"analyzerName": "percentage"}}}, "models": models}))
PYTHON
"$wva" report "$work/day.jsonl" --file "$site/report.html"
# What the middle of the day must show.
sed -n 241p "$work/day.jsonl" | "$wva" decide -f - -o json > "$work/noon.json"

serve "$site"
dark=--blink-settings=preferredColorScheme=0
browse --virtual-time-budget=60000 --dump-dom "$url/check.html" > "$work/light.html"
browse --virtual-time-budget=60000 "$dark" --dump-dom "$url/check.html" > "$work/dark.html"
for width in 1280 390; do
  browse --window-size="$width,1600" --virtual-time-budget=5000 --screenshot="$shots/light-$width.png" "$url/report.html"
  browse "$dark" --window-size="$width,1600" --virtual-time-budget=5000 --screenshot="$shots/dark-$width.png" "$url/report.html"
done
python3 - "$work" << 'PYTHON'
import html
import json
import pathlib
import re
import sys

CYCLES = 480


def read(page):
    found = re.search(r'<pre id="result">(.*?)</pre>', page.read_text(), re.S)
    results = json.loads(html.unescape(found.group(1))) if found and found.group(1) else []
    return {result["name"]: result for result in results}


def luminance(colour):
    channels = [int(part) / 255 for part in re.findall(r"\d+", colour)[:3]]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(colours):
    low, high = sorted(luminance(colours.get(key, "0, 0, 0")) for key in ("paper", "ink"))
    return (high + 0.05) / (low + 0.05)


work = pathlib.Path(sys.argv[1])
light, dark = read(work / "light.html"), read(work / "dark.html")
noon = next(d for d in json.loads((work / "noon.json").read_text())["decisions"] if d["variant"] == "a100")
console = (work / "console.log").read_text().splitlines()
wide, narrow, colours = (light.get(name, {}) for name in ("wide", "narrow", "colours"))
texts = wide.get("texts", [""] * 5)
expected = f"2026-01-01T12:00:00Z: {noon['current']} -> {noon['target']}\n{noon['reason']}: "
checks = [
    ("every frame was opened", set(light) == set(dark) == {"wide", "narrow", "colours"}),
    ("no script error", not console and not any(r["errors"] for r in [*light.values(), *dark.values()])),
    ("no text of the recording runs", wide.get("alerts") == 0),
    ("every variant has a row of four plots", (wide.get("rows"), wide.get("figures")) == (3, 4)),
    # Ready, current, target, two of the KV cache, queue, cost.
    ("as many points as cycles", wide.get("points") == [CYCLES] * 7),
    ("new targets are marked", wide.get("steps", 0) > 0),
    ("the box has the decision at noon", texts[2].startswith(expected)),
    ("the box has its sentence", len(texts[2].split("\n")[1]) > len(noon["reason"]) + 20),
    ("first and last decision are shown", "T00:00:00Z: " in texts[0] and "T23:57:00Z: " in texts[4]),
    ("each plot of the row has a line at the time", wide.get("cursors") == 4),
    ("Escape hides the box", wide.get("hidden") is True),
    ("the box follows the pointer within 20 ms", wide.get("milliseconds", 1e9) < 5 * 20),
    ("the page fits a narrow screen", narrow.get("overflow", 1) <= 0 and narrow.get("inside") is True),
    ("letters are readable on a narrow screen", narrow.get("letters", 0) >= 9),
    ("light and dark differ", luminance(colours.get("paper", "0")) > 0.8 > 0.1 > luminance(dark["colours"]["paper"])),
    ("contrast is at least 7", contrast(colours) >= 7 and contrast(dark["colours"]) >= 7),
]
for name, holds in checks:
    print(f"{'ok    ' if holds else 'FAILED'} {name}")
if not all(holds for _, holds in checks):
    sys.exit("\n".join([json.dumps(light, indent=1), json.dumps(dark.get("colours")), json.dumps(noon)[:2000], *console]))
PYTHON
echo "screenshots: $shots"
