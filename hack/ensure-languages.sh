#!/usr/bin/env bash
# Makes sure that the example tools in Python and TypeScript can run, or says what
# to do. Only where CI is set must they: elsewhere their tests are left out.
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

ensure python python3
ensure node_js nodejs npm
if node_js && ! packages; then
  echo "installing the packages of the example in TypeScript"
  (cd "$example" && npm install --omit=dev --no-audit --no-fund --loglevel=error >/dev/null) || true
fi
if python && node_js && packages; then exit 0; fi
echo "The example tools need Python 3.11, Node.js 18.19 with npm, and \`npm install\` in examples/tools/typescript." >&2
[ -z "${CI:-}" ]
