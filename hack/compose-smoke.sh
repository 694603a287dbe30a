#!/usr/bin/env bash
# Brings up compose.yaml, kills a worker while runs are in flight, sees that all of
# them finish, and takes everything down. Starts an engine of its own where none
# answers and it may. Exits with 0 and says why where there can be no engine.
set -euo pipefail
cd "$(dirname "$0")/.."
if ! { command -v docker >/dev/null && docker info >/dev/null 2>&1; }; then
  code=0
  hack/with-engine.sh "hack/${0##*/}" || code=$?
  if [ "$code" = 3 ]; then
    echo "compose smoke: skipped"
    exit 0
  fi
  exit "$code"
fi
dir=$(mktemp -d)
started=

skip() {
  echo "compose smoke: skipped, $1"
  exit 0
}

cleanup() {
  local code=$?
  if [ -n "$started" ]; then
    if [ "$code" != 0 ]; then compose logs --tail 30 || true; fi
    compose down -v --timeout 5 >/dev/null 2>&1 || true
  fi
  rm -rf "$dir" || true
}
trap cleanup EXIT

install_package() {
  [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null || return 1
  apt-get update -qq >/dev/null 2>&1 || true
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$1" >"$dir/apt.log" 2>&1
}

compose() {
  if docker compose version >/dev/null 2>&1; then
    docker compose -f deployments/compose.yaml -p "$project" "$@"
  else
    # The first docker-compose knows no project name in the file.
    docker-compose -f "$dir/compose.yaml" --project-directory deployments -p "$project" "$@"
  fi
}

if ! docker compose version >/dev/null 2>&1 && ! command -v docker-compose >/dev/null; then
  install_package docker-compose || skip "no docker compose, and docker-compose cannot be installed"
fi
sed '/^name:/d' deployments/compose.yaml >"$dir/compose.yaml"

# With a registry the images are the published ones and the Dockerfile's; without,
# they are made of what is here.
pulled=true
for image in nats:2.15-alpine redis:7 golang:1.26; do
  timeout 300 docker pull -q "$image" >/dev/null 2>&1 || { pulled=false; break; }
done
project=turnpike-smoke-$$
export TURNPIKE_PORT=$((10000 + RANDOM % 20000))
export TURNPIKE_URL=http://127.0.0.1:$TURNPIKE_PORT
started=true
if $pulled; then
  compose up -d --build
else
  echo "compose smoke: no registry answers, the images are built from this machine's parts"
  settings=$(deployments/build-images.sh)
  eval "$settings"
  compose up -d --no-build
fi

go build -o "$dir/turnpike" ./cmd/turnpike
for _ in $(seq 300); do "$dir/turnpike" ps >/dev/null 2>&1 && break; sleep 0.2; done
cat >"$dir/slow.yaml" <<'Y'
name: slow
model: {provider: scripted, responses: [{text: "Through the containers.", delay: 3s}]}
Y
"$dir/turnpike" agents put "$dir/slow.yaml"
runs=()
for n in 1 2 3 4 5 6; do
  "$dir/turnpike" run slow "run $n" >"$dir/run-$n.log" 2>&1 & runs+=($!)
done
sleep 1.5
victim=$(docker ps -q --filter "label=com.docker.compose.project=$project" --filter label=com.docker.compose.service=worker | head -n 1)
docker kill "$victim" >/dev/null
failed=0
for run in "${runs[@]}"; do wait "$run" || failed=$((failed + 1)); done
if [ "$failed" != 0 ] || [ "$(grep -l 'Through the containers.' "$dir"/run-*.log | wc -l)" != 6 ]; then
  cat "$dir"/run-*.log
  echo "compose smoke: $failed of 6 runs did not complete" >&2
  exit 1
fi
echo "compose smoke: 6 runs completed in nats, redis, gateway and three workers, one of them killed"
