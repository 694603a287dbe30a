#!/usr/bin/env bash
# Holds our MCP client against the official conformance suite and the reference
# server, which are npm packages. They, and the Node.js that the suite wants, come into
# .bin/mcp.
set -euo pipefail
cd "$(dirname "$0")/.."

if ! command -v npm >/dev/null; then
  if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
    echo "The MCP conformance suite needs npm: install Node.js." >&2
    exit 1
  fi
  echo "installing npm"
  apt-get update -qq >/dev/null
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends nodejs npm ca-certificates >/dev/null
fi
npm install --prefix .bin/mcp --no-audit --no-fund --loglevel=error \
  node@22.23.3 @modelcontextprotocol/conformance@0.2.0-alpha.12 @modelcontextprotocol/server-everything@2026.8.31 >/dev/null
TURNPIKE_MCP_NODE_MODULES=$PWD/.bin/mcp/node_modules go test -count=1 -timeout 5m -run 'TestConformance|TestReferenceServer' ./internal/tool/mcptool
