# shellcheck shell=bash
# Sourced by tests that open pages in headless Chromium, in the root of the repository. CHROMIUM names the browser.
chromium=${CHROMIUM:-chromium}
command -v "$chromium" > /dev/null ||
  { echo "$chromium is missing: install it (apt-get install chromium), or name a browser in CHROMIUM" >&2; exit 1; }
target=${CARGO_TARGET_DIR:-target}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# shots NAME: empties the folder of the screenshots of a test, and prints its path.
shots() {
  rm -rf "$target/$1-screenshots"
  mkdir -p "$target/$1-screenshots"
  (cd "$target/$1-screenshots" && pwd)
}

# serve FOLDER [COMMAND]: serves the files of a folder and sets url. COMMAND runs at the end of the test.
serve() {
  local port
  python3 -u -m http.server --bind 127.0.0.1 --directory "$1" 0 > "$work/server.log" 2>&1 &
  # shellcheck disable=SC2064 # the values of now
  trap "kill $!; ${2:-:}; rm -rf '$work'" EXIT
  for _ in $(seq 50); do
    port=$(sed -n 's/.* port \([0-9]*\) .*/\1/p' "$work/server.log" | head -n 1)
    [ -z "$port" ] || break
    sleep 0.1
  done
  export url=http://127.0.0.1:${port:?the server of the pages did not start}
}

# browse ARGUMENT...: one run of the browser with a new profile and without connections of its own. Messages of scripts
# go to console.log.
browse() {
  timeout 120 "$chromium" --headless --no-sandbox --disable-gpu --disable-quic --no-first-run --hide-scrollbars \
    --disable-background-networking --disable-component-update --disable-sync --user-data-dir="$work/profile" \
    --enable-logging=stderr "$@" 2> "$work/browser.log" || { cat "$work/browser.log" >&2; return 1; }
  grep CONSOLE "$work/browser.log" | grep -v favicon >> "$work/console.log" || true
}
