#!/usr/bin/env bash
# Builds the site of docs/ with mdBook, pinned and installed once, into target/docs. Fails on a link without a target.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
version=0.5.4
target=${CARGO_TARGET_DIR:-target}
mkdir -p "$target"
target=$(cd "$target" && pwd)
mdbook=$target/tools/bin/mdbook
[ "$("$mdbook" --version 2> /dev/null)" = "mdbook v$version" ] ||
  cargo install --quiet --locked --root "$target/tools" --version "$version" --no-default-features --features search mdbook

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
"$mdbook" build --dest-dir "$target/docs"

cd "$target/docs"
dead=0
while IFS=: read -r page link; do
  [ -e "$(dirname "$page")/$link" ] || { echo "$page: no target for the link $link" >&2; dead=$((dead + 1)); }
done < <(grep -roE --include='*.html' --exclude=404.html '(href|src)="[^"#:]+["#]' . | sed -E 's/(href|src)="//; s/["#]$//' | sort -u)
[ $dead = 0 ] || exit 1
echo "docs: $(find . -name '*.html' | wc -l) pages in $target/docs"
