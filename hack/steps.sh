#!/usr/bin/env bash
# Runs targets of make one after the other, says how long each took, and ends at the
# first that fails.
set -euo pipefail
cd "$(dirname "$0")/.."
for target in "$@"; do
  began=$SECONDS
  echo "== $target"
  make --no-print-directory "$target"
  echo "== $target: ok, $((SECONDS - began)) s"
done
