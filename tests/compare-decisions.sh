#!/usr/bin/env bash
# Compares `wva decide` of this commit and of an earlier one for 1,000 snapshots that the earlier one generates:
#   tests/compare-decisions.sh COMMIT
# Builds COMMIT once, in target/previous. Prints how many decisions have the same target and the same reasons, and the
# others by kind: reasons that are gone, reasons that are new, and whether the target rises or falls. Fails if an answer is
# missing. The answers stay in target/decisions. Needs Python 3.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
before=$(tests/previous.sh "${1:?name the commit to compare with}")
target=${CARGO_TARGET_DIR:-target}
answers=$target/decisions
rm -rf "$answers"
mkdir -p "$answers"
answers=$(cd "$answers" && pwd)
cargo build --quiet --locked --bin wva
(
  cd "$target/previous/source"
  export CARGO_TARGET_DIR=$PWD/../target
  # The earlier commit knows no fields that came later.
  cargo test --quiet --locked --package wva-scaling --lib tests::generated::print_snapshots -- --ignored --nocapture
) | grep '^{' | split --lines=1 --numeric-suffixes --suffix-length=4 - "$answers/snapshot-"
for snapshot in "$answers"/snapshot-*; do
  name=${snapshot##*-}
  "$before" decide -f "$snapshot" --format json > "$answers/before-$name" 2> /dev/null || true
  "$target/debug/wva" decide -f "$snapshot" --format json > "$answers/after-$name" 2> /dev/null || true
done
python3 - "$answers" <<'PYTHON'
import collections, glob, json, sys

folder = sys.argv[1]


def facts(path):
    """What differs on purpose, of each model: the first that applies."""
    with open(path, encoding="utf-8") as file:
        snapshot = json.load(file)
    found = {}
    for model in snapshot["models"]:
        variants = model["variants"]
        replicas = [replica for variant in variants for replica in variant.get("replicas", [])]
        if any(variant.get("desired", variant["current"]) != variant["current"] for variant in variants):
            kind = "a target that is not carried out yet"
        elif any("kv" not in replica or "queue" not in replica for replica in replicas):
            kind = "a main signal is missing"
        elif any(variant.get("running") == 0 for variant in variants) or any(
            not work.get("running") for replica in replicas for work in replica.get("work", [])
        ):
            kind = "an idle replica, whose cache does not count"
        else:
            kind = "none of these"
        for variant in variants:
            found[model["namespace"], variant["name"]] = kind
    return found


def decisions(path):
    """Target and reasons of each variant."""
    with open(path, encoding="utf-8") as file:
        answer = json.load(file)
    return {
        (one["namespace"], one["variant"]): (one["target"], {step["reason"] for step in one["steps"]})
        for one in answer["decisions"]
    }


same, kinds, facts_of, failed = 0, collections.Counter(), collections.Counter(), []
for snapshot in sorted(glob.glob(folder + "/snapshot-*")):
    name = snapshot.rsplit("-", 1)[1]
    try:
        before, after = (decisions(f"{folder}/{side}-{name}") for side in ("before", "after"))
        fact = facts(snapshot)
    except (ValueError, KeyError) as error:
        failed.append(f"{name}: {error!r}")
        continue
    for key, (target, reasons) in before.items():
        now, new = after[key]
        if (target, reasons) == (now, new):
            same += 1
            continue
        way = "same target" if now == target else "higher" if now > target else "lower"
        change = [f"-{code}" for code in sorted(reasons - new)] + [f"+{code}" for code in sorted(new - reasons)]
        kinds[way, " ".join(change) or "same reasons"] += 1
        facts_of[way, fact[key]] += 1
print(f"{same} decisions are the same, {sum(kinds.values())} differ")
for (way, fact), count in facts_of.most_common():
    print(f"{count:6} {way:12} {fact}")
print("by reasons:")
for (way, change), count in kinds.most_common():
    print(f"{count:6} {way:12} {change}")
if failed or same == 0:
    sys.exit("no answers for " + ", ".join(failed[:5]))
PYTHON
