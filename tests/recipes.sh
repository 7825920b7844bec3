#!/usr/bin/env bash
# Walks the recipes of CONTRIBUTING.md for a setting, a rule and a metric on a copy of the checkout. With all steps the checks
# pass, and every changed file is one that the recipe names. Without any one step, the check that asks for it fails. Needs the
# control plane of the tests. The copy stays in target/recipes; it compiles only the crates of the workspace, and the next build
# of the checkout compiles them again.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
root=$PWD
target=$(mkdir -p "${CARGO_TARGET_DIR:-target}" && cd "${CARGO_TARGET_DIR:-target}" && pwd)
copy=$target/recipes
rm -rf "$copy"
mkdir -p "$copy"
git ls-files -co --exclude-standard -z | xargs -0 cp --parents --preserve=timestamps -t "$copy"
cd "$copy"
# Outside the repository around it, so that the copy sees its own changes.
git init --quiet
git add --all
git -c user.name=walk -c user.email=walk@localhost commit --quiet --no-verify --message base
export CARGO_TARGET_DIR=$target CARGO_INCREMENTAL=0
# Cargo takes what it compiled from the copy for the checkout's own, since it tells packages apart by their path within the workspace.
trap 'cd "$root" && cargo clean --quiet --workspace' EXIT

fail() { echo "recipes: $*" >&2; exit 1; }
# after FILE PATTERN TEXT: inserts a line after the first line that matches.
after() {
  grep -qE -- "$2" "$1" || fail "$1 has no line $2: change this walk"
  pattern=$2 text=$3 awk '{ print } !done && $0 ~ ENVIRON["pattern"] { print ENVIRON["text"]; done = 1 }' "$1" > "$1.part"
  mv "$1.part" "$1"
}
# The same packages and features as the whole workspace has, so that no library is compiled again.
cargo_test() { cargo test --locked --quiet -p wva -p wva-rules -p wva-cli "$@"; }
settings() { cargo_test --lib settings::; }
rules() { cargo_test --test examples --test table; }
# By its binary: cargo would compile the program with other pages first.
generated() { "$target/debug/xtask" generate --check; }
metrics() { cargo_test --test e2e lifecycle::metrics::; }
chart() { cargo_test --test program --no-run && tests/chart.sh; }

# passes CHECK
passes() {
  echo "  $1 passes"
  "$1" > "$copy.log" 2>&1 || { tail -n 60 "$copy.log" >&2; fail "$1 fails although every step is done"; }
}
# needs FILE CHECK WORDS: without the step that changes FILE, the check fails with these words.
needs() {
  echo "  without $1, $2 fails"
  local done=$copy.done
  cp "$1" "$done"
  if git cat-file -e "HEAD:$1" 2> /dev/null; then git show "HEAD:$1" > "$1"; else rm "$1"; fi
  if "$2" > "$copy.log" 2>&1; then fail "$2 passes without the change of $1: no check asks for this step"; fi
  grep -qF -- "$3" "$copy.log" || { tail -n 60 "$copy.log" >&2; fail "without $1, $2 fails without the words: $3"; }
  cp "$done" "$1"
}
# named HEADING CODE: every change since the last call is in a file or folder that the section of CONTRIBUTING.md names.
named() {
  local paths file path
  # shellcheck disable=SC2016 # backticks of Markdown
  paths=$(awk -v heading="## $1" '$0 == heading { on = 1; next } /^## / { on = 0 } on' CONTRIBUTING.md |
    grep -oE '`[a-zA-Z_.-]+/[^` ]+`' | tr -d '`' | sed "s|CODE|$2|")
  while read -r file; do
    for path in $paths; do if [[ $file == "$path" || $file == "$path"/* ]]; then continue 2; fi; done
    fail "\"$1\" in CONTRIBUTING.md does not name $file, which changes"
  done < <(git status --porcelain --untracked-files=all | cut -c4-)
  git add --all
  git -c user.name=walk -c user.email=walk@localhost commit --quiet --no-verify --message "$1"
}
generate() {
  { cargo_test -p xtask --test generate --no-run && "$target/debug/xtask" generate; } > "$copy.log" 2>&1 || { tail -n 60 "$copy.log" >&2; fail "make generate fails"; }
}

echo "== Add a setting"
setting=WVA_RECIPE_WALK
after crds/src/settings/table.rs '^    WVA_EARLY_SCALE_UP: ' "    $setting: bool = (Kind::Bool, \"Turns early scale-ups around.\").default(\"false\").mutable(),"
sed -i "s/early_scale_up: self.get(keys::WVA_EARLY_SCALE_UP)/& ^ self.get(keys::$setting)/" src/settings/reader.rs
sed -i "s/\"WVA_PENDING_GRACE\" \"WVA_EARLY_SCALE_UP\"/& \"$setting\"/" charts/workload-variant-autoscaler/templates/_helpers.tpl
generate
for check in settings generated chart; do passes $check; done
needs src/settings/reader.rs settings "nothing reads [\"$setting\"]"
needs docs/reference/configuration.md generated "docs/reference/configuration.md is outdated: run \`make generate\`"
needs charts/workload-variant-autoscaler/templates/_helpers.tpl chart "add it to wva.mutableSettings"
named "Add a setting" ""

echo "== Add a rule"
code=WVA-VA-089
cat >> webhook/rules/src/va/cost.rs <<'RULE'

pub(crate) const WALK: Rule = Rule {
    code: "WVA-VA-089",
    field: "spec.variantCost",
    message: "{found} is the cost of the walk; use another",
    docs: "`spec.variantCost` is the cost of the walk.",
    check: Check::Variant(|facts, out| {
        if let Some(Value::String(cost)) = facts.spec("variantCost").filter(|cost| *cost == "999.125") {
            out.add(quote(cost), "");
        }
    }),
    ..WARN
};
RULE
after webhook/rules/src/table.rs '^    cost::PATTERN,' '    cost::WALK,'
# shellcheck disable=SC2016 # a cost in dollars
sed 's/^title: .*/title: The cost is that of the walk/; s/^refused:/warned:/; s/variantCost: \$40\/h/variantCost: "999.125"/' webhook/rules/examples/WVA-VA-003.yaml > webhook/rules/examples/$code.yaml
generate
for check in rules generated; do passes $check; done
needs webhook/rules/src/table.rs rules each_rule_has_an_example
needs webhook/rules/examples/$code.yaml rules each_rule_has_an_example
for file in docs/reference/rules/$code.md docs/SUMMARY.md cli/src/rule/pages.gz; do needs "$file" generated "$file is outdated: run \`make generate\`"; done
named "Add a rule" $code

echo "== Add a metric"
after webhook/src/metrics.rs 'registry.register\(Box::new\(total.clone\(\)\)\)' \
  '        registry.register(Box::new(prometheus::IntGauge::new("wva_recipe_walk", "Whether this is the walk.")?))?;'
after tests/e2e/lifecycle/metrics.rs '\("wva_leader", "gauge"' '    ("wva_recipe_walk", "gauge", &[]),'
# shellcheck disable=SC2016 # sed runs it as a command of the shell
sed -i -E 's/^(const METRICS: .*; )([0-9]+)(\] = \[)$/echo "\1$((\2 + 1))\3"/e' tests/e2e/lifecycle/metrics.rs
# shellcheck disable=SC2016 # the name is code
after docs/reference/metrics.md '^\| `wva_leader` ' '| `wva_recipe_walk` | | whether this is the walk |'
passes metrics
needs tests/e2e/lifecycle/metrics.rs metrics "wva_recipe_walk is not in the API"
needs docs/reference/metrics.md metrics "wva_recipe_walk is in no doc"
named "Add a metric" ""
cd "$root"
rm -rf "$copy"
echo "recipes: three are as CONTRIBUTING.md says, and each step is asked for"
