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
chart=charts/workload-variant-autoscaler
home=$(sed -n 's/^home: //p' $chart/Chart.yaml)
mv "$copy/docs/theme" "$copy"
cp $chart/icon.svg "$copy/theme/favicon.svg"
# In place of the fonts that mdBook would copy.
mkdir "$copy/theme/fonts"
echo "/* The site uses the reader's fonts. */" > "$copy/theme/fonts/fonts.css"
cd "$copy"
while IFS= read -r page; do
  root=$(dirname "$page" | sed 's|[^/]\{1,\}|..|g')
  sed -i -E "s#\]\(${root//./\\.}/#]($home/blob/main/#g; s#\]\(([^):]*)README\.md#](\1index.md#g" "$page"
done < <(find docs -name '*.md')
find docs -name README.md -execdir mv {} index.md \;
# Adds the preprocessor and its script to the copy of book.toml. Its own mermaid-init.js looks for the buttons of mdBook 0.4.
mdbook-mermaid install . > /dev/null
mv theme/mermaid-init.js .
export MDBOOK_OUTPUT__HTML__GIT_REPOSITORY_URL=$home
mdbook build --dest-dir "$target/docs"

cd "$target/docs"
# `ls` names each file that is missing, all in one process.
links=$(grep -roE --include='*.html' --exclude=404.html '(href|src)="[^"#:]+["#]' . |
  sed -E 's,^(.*)/[^/:]*:(href|src)=",\1/,; s,["#]$,,' | sort -u)
dead=$(xargs -d '\n' ls -d <<< "$links" 2>&1 > /dev/null || true)
[ -z "$dead" ] || { printf 'a link without a target: %s\n' "$dead" >&2; exit 1; }
echo "docs: $(find . -name '*.html' | wc -l) pages in $target/docs"
