#!/usr/bin/env bash
# Makes sure that the tests of the page find a Chromium and axe-core, or says what to do.
set -euo pipefail
cd "$(dirname "$0")/.."
if ! command -v chromium >/dev/null; then
  if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
    echo "The tests of the page need chromium: install it." >&2
    exit 1
  fi
  echo "installing chromium"
  apt-get update -qq >/dev/null
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium fonts-dejavu-core >/dev/null
fi
hack/ensure-languages.sh
axe=4.14.1
if ! grep -qs "\"version\": \"$axe\"" .bin/axe/node_modules/axe-core/package.json; then
  npm install --prefix .bin/axe --no-save --no-package-lock --no-audit --no-fund --loglevel=error "axe-core@$axe" >/dev/null
fi
