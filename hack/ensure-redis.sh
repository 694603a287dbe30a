#!/usr/bin/env bash
# Makes sure that tests find a real Redis, or says what to do. With --server it must
# be the program redis-server.
set -euo pipefail
if command -v redis-server >/dev/null; then exit 0; fi
if [ "${1:-}" != --server ] && [ -n "${TURNPIKE_TEST_REDIS_URL:-}" ]; then exit 0; fi
if [ "${1:-}" != --server ] && docker info >/dev/null 2>&1; then exit 0; fi
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
  echo "installing redis-server"
  apt-get update -qq >/dev/null
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq redis-server >/dev/null
  exit 0
fi
echo "The tests need a Redis: install redis-server, start Docker, or set TURNPIKE_TEST_REDIS_URL." >&2
exit 1
