#!/usr/bin/env bash
# Runs a command with a Docker engine: the one that answers, or one that is started
# for the command and ends with it. Exits with 3 and says what to do where there can
# be none.
set -euo pipefail
if command -v docker >/dev/null && docker info >/dev/null 2>&1; then exec "$@"; fi

dir=$(mktemp -d)
engine=
bridge=$(ip link show docker0 2>/dev/null || true)

cleanup() {
  if [ -n "$engine" ]; then
    kill "$engine" 2>/dev/null || true
    wait "$engine" 2>/dev/null || true
    if [ -z "$bridge" ]; then ip link delete docker0 2>/dev/null || true; fi
  fi
  rm -rf "$dir" || true
}
trap cleanup EXIT

none() {
  echo "no Docker engine: $1. Install docker.io and start it, or run this as root where containers may be started." >&2
  exit 3
}

[ "$(id -u)" = 0 ] || none "none answers, and only root can start one"
if ! command -v dockerd >/dev/null; then
  command -v apt-get >/dev/null || none "docker.io is not installed"
  apt-get update -qq >/dev/null 2>&1 || true
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends docker.io >"$dir/apt.log" 2>&1 || none "docker.io cannot be installed"
fi

# The engine has its data, its socket and its process in this script's directory.
export DOCKER_HOST=unix://$dir/docker.sock
dockerd -H "$DOCKER_HOST" --data-root "$dir/data" --exec-root "$dir/exec" --pidfile "$dir/dockerd.pid" >"$dir/dockerd.log" 2>&1 </dev/null &
engine=$!
for _ in $(seq 120); do
  if docker info >/dev/null 2>&1; then
    code=0
    "$@" || code=$?
    exit "$code"
  fi
  kill -0 "$engine" 2>/dev/null || break
  sleep 0.5
done
none "$(grep -E 'level=(fatal|error)|failed to start' "$dir/dockerd.log" | tail -n 1 | cut -c1-300)"
