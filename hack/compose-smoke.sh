#!/usr/bin/env bash
# Brings up compose.yaml, sees that NATS, Redis and the API refuse strangers, kills a
# worker while runs are in flight, sees that all of them finish, stops and starts all with
# the secrets that were made, and takes everything down. Starts an engine of its own where none
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
export TURNPIKE_OPERATOR_DIR=$dir/operator
mkdir "$TURNPIKE_OPERATOR_DIR"
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
export XDG_CONFIG_HOME=$dir/config # of no tokens

# answers waits for the gateway with the key of the admin.
answers() {
  for _ in $(seq 300); do
    if TURNPIKE_TOKEN=$(cat "$TURNPIKE_OPERATOR_DIR/api-key" 2>/dev/null) "$dir/turnpike" ps >/dev/null 2>&1; then return; fi
    sleep 0.2
  done
  echo "compose smoke: the gateway does not answer the admin" >&2
  exit 1
}

# container prints the container of a service.
container() { docker ps -q --filter "label=com.docker.compose.project=$project" --filter "label=com.docker.compose.service=$1" | head -n 1; }

# address prints that of a service's container.
address() { docker inspect -f '{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}' "$(container "$1")"; }

# asks says something to a port of a service and prints what comes back.
asks() {
  exec 3<>"/dev/tcp/$(address "$1")/$2"
  printf '%b' "$3" >&3
  timeout 5 cat <&3 || true
  exec 3<&- 3>&-
}

# refused fails unless what a stranger was told has a text.
refused() {
  local who=$1 want=$2 got=$3
  if [[ $got != *"$want"* ]]; then
    echo "compose smoke: $who tells a stranger: $got" >&2
    exit 1
  fi
}

answers
refused NATS "Authorization Violation" "$(asks nats 4222 'CONNECT {"verbose":true}\r\nPING\r\n')"
refused NATS "Authorization Violation" "$(asks nats 4222 'CONNECT {"verbose":true,"user":"gateway","pass":"gateway"}\r\nPING\r\n')"
refused Redis NOAUTH "$(asks redis 6379 'PING\r\nGET turnpike:x\r\n')"
refused Redis WRONGPASS "$(asks redis 6379 'AUTH default \r\nAUTH gateway gateway\r\n')"
refused "the API" unauthenticated "$("$dir/turnpike" ps 2>&1 || true)"
refused "the API" unauthenticated "$(TURNPIKE_TOKEN=tp_aaaaaaaaaaaaaaaa_aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa "$dir/turnpike" ps 2>&1 || true)"
if (exec 3<>"/dev/tcp/$(address nats)/8222") 2>/dev/null; then
  echo "compose smoke: the monitoring of NATS is there for strangers" >&2
  exit 1
fi
mode=$(stat -c %a "$TURNPIKE_OPERATOR_DIR/api-key")
if [ "$mode" != 600 ]; then
  echo "compose smoke: the file of the API key has mode $mode" >&2
  exit 1
fi
key=$(cat "$TURNPIKE_OPERATOR_DIR/api-key")
export TURNPIKE_TOKEN=$key
if compose logs 2>&1 | grep -qF "$key"; then
  echo "compose smoke: the API key is in a log" >&2
  exit 1
fi
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
victim=$(container worker)
docker kill "$victim" >/dev/null
failed=0
for run in "${runs[@]}"; do wait "$run" || failed=$((failed + 1)); done
if [ "$failed" != 0 ] || [ "$(grep -l 'Through the containers.' "$dir"/run-*.log | wc -l)" != 6 ]; then
  cat "$dir"/run-*.log
  echo "compose smoke: $failed of 6 runs did not complete" >&2
  exit 1
fi
compose down --timeout 30 >/dev/null 2>&1 # the volumes stay
compose up -d --no-build >/dev/null 2>&1
answers
if [ "$(cat "$TURNPIKE_OPERATOR_DIR/api-key")" != "$key" ] || ! "$dir/turnpike" run slow again | grep -q "Through the containers."; then
  echo "compose smoke: the secrets of the first start do not serve the second" >&2
  exit 1
fi
echo "compose smoke: strangers are refused; 6 runs completed in nats, redis, gateway and three workers, one of them killed"
