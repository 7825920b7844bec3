#!/usr/bin/env bash
# Opens reports in headless Chromium, in light and dark: of a generated day, or FOLDER/report.html of the recording
# FOLDER/cycles.jsonl, as `make demo` leaves them; of a simulation; and of a backtest. Fails on a script error, a missing
# point or decision, text of the recording that runs as a script, or a page wider than a narrow screen. Screenshots go to
# target/report-screenshots.
#
#   tests/report-browser.sh [FOLDER]
#
# CHROMIUM names the browser. DOCS=1 writes the pictures of docs/guides/report.md.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. tests/browser.sh
wva=${WVA_PROGRAM:-$target/debug/wva}
shots=$(shots report)
site=$work/site
mkdir "$site"

if [ -n "${1:-}" ]; then
  name=$(basename "$1")
  cp "$1/cycles.jsonl" "$work/cycles.jsonl"
  cp "$1/report.html" "$site/report.html"
else
  name=day
  # A day at a cycle of three minutes: a daily wave, two models, three variants, and a model that is a script.
  python3 - > "$work/cycles.jsonl" << 'PYTHON'
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
  "$wva" report "$work/cycles.jsonl" --file "$site/report.html"
fi
"$wva" simulate tests/scenarios/cold-morning.yaml --report "$site/simulate.html" > "$work/simulate.txt"
# What `wva backtest --export` would write of two calm hours (tests/fixtures/history.rs).
python3 - > "$work/calm.jsonl" << 'PYTHON'
import json

begin, hours = 1_800_000_000, 2
end, windows = begin + 3600 * hours, 12 * hours
model = {"namespace": "prod", "model": "acme/<b>"}


def histogram(bounds, row):
    return {"bounds": bounds, "rows": [row] * windows}


print(json.dumps({"apiVersion": "wva.llmd.ai/v1alpha1", "kind": "BacktestHistory", "wvaVersion": "0.1.0", "from": begin,
                  "to": end, "step": 60, "interval": 60.0, **model}))
print(json.dumps({"chunk": {**model, "from": begin, "cells": [[2, 2, 200, 100, 1, 0]] * (60 * hours),
    "windows": {
        "prompt": histogram([50, 100, 200], [0, 5, 5, 0]), "output": histogram([20, 50, 100], [0, 5, 5, 0]),
        "ttft": histogram([0.02, 0.04, 0.06, 0.1, 1.0], [0, 10, 0, 0, 0, 0]),
        "requestGap": histogram([0.01, 0.025, 0.05, 0.1], [0, 10, 0, 0, 0]),
        "gapSeconds": [9.8] * windows, "gaps": [490.0] * windows},
    "engine": {"kvTokens": 272000.0, "mostRunning": 2.0, "mostRunningWhileWaiting": 0.0, "ceilingScrapes": 0}}}))
print(json.dumps({"done": {"from": begin, "to": end, "warning": None}}))
PYTHON
"$wva" backtest --from "$work/calm.jsonl" --report "$site/backtest.html" -o json > "$work/backtest.json"
# Cycles of the first variant: their number, the times of the first and the last, and what the middle one must show.
python3 - "$work" << 'PYTHON'
import json
import pathlib
import sys
from datetime import datetime

work = pathlib.Path(sys.argv[1])
cycles = [json.loads(line) for line in (work / "cycles.jsonl").read_text().splitlines()]


def variants(cycle):
    return sorted((m["namespace"], m["modelID"], v["name"]) for m in cycle["models"] for v in m["variants"])


def seconds(cycle):
    return datetime.fromisoformat(cycle["now"]).timestamp()


everyone = sorted({variant for cycle in cycles for variant in variants(cycle)})
mine = [cycle for cycle in cycles if everyone[0] in variants(cycle)]
# Early decisions have the time of their cycle; a box shows the first of them.
times = [cycle["now"] for cycle in mine]
middle = next(cycle for cycle in mine[len(mine) // 2 :] if times.count(cycle["now"]) == 1)
begin, end = seconds(cycles[0]), seconds(cycles[-1])
facts = {
    "rows": len(everyone), "variant": everyone[0][2], "cycles": len(mine), "share": (seconds(middle) - begin) / (end - begin),
    "times": [cycle["now"].split(".")[0].removesuffix("Z") for cycle in (mine[0], middle, mine[-1])],
}
(work / "facts.json").write_text(json.dumps(facts))
(work / "middle.json").write_text(json.dumps(middle))
PYTHON
"$wva" decide -f "$work/middle.json" -o json > "$work/decided.json"
share=$(sed 's/.*"share": \([0-9.]*\).*/\1/' "$work/facts.json")
sed "s/MIDDLE = 0.5/MIDDLE = $share/" tests/report-browser.html > "$site/check.html"

serve "$site"
dark=--blink-settings=preferredColorScheme=0
browse --virtual-time-budget=60000 --dump-dom "$url/check.html" > "$work/light.html"
browse --virtual-time-budget=60000 "$dark" --dump-dom "$url/check.html" > "$work/dark.html"
browse --virtual-time-budget=5000 --dump-dom "file://$site/report.html" > "$work/file.html"
for page in report simulate backtest; do
  for width in 1280 390; do
    shot=${page/report/$name}
    browse --window-size="$width,1600" --virtual-time-budget=5000 --screenshot="$shots/$shot-light-$width.png" "$url/$page.html"
    browse "$dark" --window-size="$width,1600" --virtual-time-budget=5000 --screenshot="$shots/$shot-dark-$width.png" "$url/$page.html"
  done
done
python3 - "$work" "$name" << 'PYTHON'
import html
import json
import pathlib
import re
import sys

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
facts = json.loads((work / "facts.json").read_text())
first, at, last = facts["times"]
middle = next(d for d in json.loads((work / "decided.json").read_text())["decisions"] if d["variant"] == facts["variant"])
console = (work / "console.log").read_text().splitlines()
wide, narrow, colours = (light.get(name, {}) for name in ("wide", "narrow", "colours"))
texts = wide.get("texts", [""] * 5)
expected = f"{at}Z: {middle['current']} -> {middle['target']}\n{middle['reason']}: "
cycles = facts["cycles"]
# Ready, current, target; of the day also two of the KV cache, queue, cost.
lines = [cycles] * 3 if sys.argv[2] != "day" else [cycles] * 7
pages = {name: light.get(name, {}) for name in ("wide", "simulate", "backtest")}
drawn = (work / "file.html").read_text()
# The policies of the table that `wva simulate` printed.
policies = [line.split("  ")[0].removeprefix("wva: ") for line in (work / "simulate.txt").read_text().splitlines()[3:]]
judged = json.loads((work / "backtest.json").read_text())["models"][0]
axes = light.get("axes", {})
ticks = [
    "80 85 90 95 100", "97 97.5 98 98.5 99 99.5", "-40 -20 0 20 40 60", "0 2 4 6 8 10 12", "0 0.5 1 1.5 2 2.5 3",
    "0 0.2 0.4 0.6 0.8 1", "0 0.2 0.4 0.6 0.8 1", "0 0.05 0.1 0.15 0.2 0.25 0.3", "0 2 4 6 8",
    "0 1 10 100 1000 10000", "0.1 1 10 100 1000", "0.0001 0.001 0.01", "1 10 100", "0 20 40 60 80",
]
shares = axes.get("shares", [0] * 6)
on_phones = ("narrow", "narrow simulate", "narrow backtest")
simulated, tested = pages["simulate"], pages["backtest"]
checks = [
    ("every frame was opened", set(light) == set(dark) == {"axes", "colours", "narrow", "narrow simulate", "narrow backtest", *pages}),
    ("the page is drawn from a file, too", "<polyline" in drawn and f"<h1>{wide.get('title')}</h1>" in drawn),
    ("no figure of a plot is unknown", not any(page.get("broken", [0]) for page in pages.values())),
    ("ticks are round and hold all values", axes.get("ticks") == ticks),
    ("values lie between the ends", shares[:3] == [0.25, 1, 0] and shares[4:] == [0.5, 0]),
    ("an outlier does not flatten the others", shares[3] > 0.2),
    ("a simulation has a row and two plots of each policy", simulated.get("plots") == 1 + 2 * len(policies)
     and simulated["tables"] == [1 + len(policies)] and len(simulated["headings"]) == 5 + len(policies)),
    ("the goal, and the objective of each policy are marked", simulated.get("marks") == 1 + len(policies)),
    ("a simulation names a point of each policy", sorted(simulated.get("names", [])) == sorted(policies)),
    ("a backtest names a point of each policy, with its ranges", tested.get("ranges") == len(judged["policies"])
     and sorted(tested["names"]) == sorted(policy["name"] for policy in judged["policies"])),
    ("figures of a backtest have their ranges below", tested.get("small") == 2 * len(judged["policies"])),
    ("a backtest has its load and replicas", [line.split()[0] for line in tested.get("lines", [])] == ["load", "plan", "two", "one"]),
    ("every hour of the calibration has its verdict", tested.get("sentences", 0) >= len(judged["calibration"])),
    ("no name of a point covers another", [simulated.get("covered"), tested.get("covered")] == [0, 0]),
    ("no script error", not console and not any(r["errors"] for r in [*light.values(), *dark.values()])),
    ("no text of the recording runs", wide.get("alerts") == 0),
    ("every variant has a row of four plots", (wide.get("rows"), wide.get("figures")) == (facts["rows"], 4)),
    ("as many points as cycles", wide.get("points", [])[: len(lines)] == lines),
    ("new targets are marked", wide.get("steps", 0) > 0),
    ("the box has the decision of the middle", texts[2].startswith(expected)),
    ("the box has its sentence", len(texts[2].split("\n")[1]) > len(middle["reason"]) + 20),
    ("first and last decision are shown", texts[0].startswith(f"{first}Z: ") and texts[4].startswith(f"{last}Z: ")),
    ("each plot of the row has a line at the time", wide.get("cursors") == 4),
    ("Escape hides the box", wide.get("hidden") is True),
    ("the box follows the pointer within 20 ms", wide.get("milliseconds", 1e9) < 5 * 20),
    ("the box fits a narrow screen", narrow.get("inside") is True),
    ("every page fits a narrow screen", all(light.get(name, {}).get("overflow", 1) <= 0 for name in on_phones)),
    ("letters are readable on a narrow screen", all(light.get(name, {}).get("letters", 0) >= 9 for name in on_phones)),
    ("light and dark differ", luminance(colours.get("paper", "0")) > 0.8 > 0.1 > luminance(dark["colours"]["paper"])),
    ("contrast is at least 7", contrast(colours) >= 7 and contrast(dark["colours"]) >= 7),
]
for name, holds in checks:
    print(f"{'ok    ' if holds else 'FAILED'} {name}")
if not all(holds for _, holds in checks):
    sys.exit("\n".join([json.dumps(light, indent=1), json.dumps(dark.get("colours")), json.dumps(facts), json.dumps(middle)[:2000], *console]))
PYTHON
if [ -n "${DOCS:-}" ]; then
  for theme in light dark; do
    colours=()
    [ $theme = light ] || colours=("$dark")
    browse "${colours[@]}" --window-size=1280,1140 --virtual-time-budget=5000 --screenshot="$PWD/docs/guides/report-$theme.png" "$url/report.html"
  done
fi
echo "screenshots: $shots"
