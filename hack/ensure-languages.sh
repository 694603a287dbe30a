#!/usr/bin/env bash
# Installs Python and Node.js for the example tools and the clients, or prints what to install. Only
# CI and `make clients`, which passes --clients, require them: elsewhere the tests of the examples are
# left out.
set -euo pipefail
example=$(cd "$(dirname "$0")/.." && pwd)/examples/tools/typescript

python() { python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }
node_js() { node -e 'const [a, b] = process.versions.node.split("."); process.exit(a > 18 || a == 18 && b >= 19 ? 0 : 1)' 2>/dev/null && command -v npm >/dev/null; }
packages() { [ -d "$example/node_modules/tsx" ] && [ -d "$example/node_modules/@nats-io/services" ]; }

ensure() { # check, Debian packages
  local check=$1
  shift
  if "$check" || [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then return; fi
  echo "installing $*"
  apt-get update -qq >/dev/null
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >/dev/null
}

pip() { python3 -m pip --version >/dev/null 2>&1; }
types() { command -v mypy >/dev/null; }

ensure python python3
ensure pip python3-pip
ensure types mypy
ensure node_js nodejs npm
if node_js && ! packages; then
  echo "installing the packages of the example in TypeScript"
  (cd "$example" && npm install --omit=dev --no-audit --no-fund --loglevel=error >/dev/null) || true
fi
if [ "${1:-}" = --clients ]; then
  if python && pip && types && node_js; then exit 0; fi
  echo "The clients need Python 3.11 with pip, mypy, and Node.js 18.19 with npm: apt-get install python3 python3-pip mypy nodejs npm" >&2
  exit 1
fi
if python && node_js && packages; then exit 0; fi
echo "The example tools need Python 3.11, Node.js 18.19 with npm, and \`npm install\` in examples/tools/typescript." >&2
[ -z "${CI:-}" ]
