#!/usr/bin/env bash
# Checks and tests the alert rules with Prometheus's own promtool. Without one it takes that of Debian's
# package prometheus into .bin, and installs nothing.
set -euo pipefail
cd "$(dirname "$0")/.."
promtool=$(command -v promtool || echo .bin/promtool)
if ! [ -x "$promtool" ]; then
  if ! command -v apt-get >/dev/null || ! command -v dpkg-deb >/dev/null; then
    echo "Not found: promtool. Install Prometheus." >&2
    exit 1
  fi
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
  (cd "$work" && { apt-get download -qq prometheus >/dev/null 2>&1 || { apt-get update -qq >/dev/null && apt-get download -qq prometheus >/dev/null; }; })
  dpkg-deb --extract "$work"/prometheus_*.deb "$work"
  mkdir -p .bin
  cp "$work/usr/bin/promtool" .bin/promtool
fi
"$promtool" check rules deployments/prometheus/alerts.yaml
"$promtool" test rules deployments/prometheus/alerts_test.yaml
