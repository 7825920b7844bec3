#!/usr/bin/env bash
# Builds the site of docs/ with mdBook and its preprocessor for diagrams, both pinned and installed once, into
# target/docs. Fails on a link without a target.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
target=${CARGO_TARGET_DIR:-target}
mkdir -p "$target"
target=$(cd "$target" && pwd)
export PATH=$target/tools/bin:$PATH
# install CRATE VERSION FLAG...
install() {
  [[ $("$1" --version 2> /dev/null) == *"$2" ]] ||
    cargo install --quiet --locked --root "$target/tools" --version "$2" "${@:3}" "$1"
}
install mdbook 0.5.4 --no-default-features --features search
install mdbook-mermaid 0.17.0

# A copy of the pages for the site. Files outside docs/ are only in the repository, so links to them name its URL.
# mdBook calls the page of a folder index.html.
copy=$target/docs-pages
rm -rf "$copy" "$target/docs"
mkdir -p "$copy"
cp -r book.toml docs "$copy"
home=$(sed -n 's/^home: //p' charts/workload-variant-autoscaler/Chart.yaml)
cd "$copy"
while IFS= read -r page; do
  root=$(dirname "$page" | sed 's|[^/]\{1,\}|..|g')
  sed -i -E "s#\]\(${root//./\\.}/#]($home/blob/main/#g; s#\]\(([^):]*)README\.md#](\1index.md#g" "$page"
done < <(find docs -name '*.md')
find docs -name README.md -execdir mv {} index.md \;
# Adds the preprocessor and its script to the copy of book.toml.
mdbook-mermaid install . > /dev/null
# Its own script looks for the buttons of mdBook 0.4.
cat > mermaid-init.js << 'SCRIPT'
const dark = ["ayu", "navy", "coal"].some((theme) => document.documentElement.classList.contains(theme));
mermaid.initialize({ startOnLoad: true, theme: dark ? "dark" : "default" });
SCRIPT
mdbook build --dest-dir "$target/docs"

cd "$target/docs"
dead=0
while IFS=: read -r page link; do
  [ -e "$(dirname "$page")/$link" ] || { echo "$page: no target for the link $link" >&2; dead=$((dead + 1)); }
done < <(grep -roE --include='*.html' --exclude=404.html '(href|src)="[^"#:]+["#]' . | sed -E 's/(href|src)="//; s/["#]$//' | sort -u)
[ $dead = 0 ] || exit 1
echo "docs: $(find . -name '*.html' | wc -l) pages in $target/docs"
