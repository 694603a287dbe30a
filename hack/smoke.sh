#!/usr/bin/env bash
# Starts NATS, Redis, a gateway and three workers as processes, with the settings
# and users of compose.yaml, sends a run through them, and takes them down.
set -euo pipefail
set -m # each process has a group, with the shell that it was started from
cd "$(dirname "$0")/.."
dir=$(mktemp -d)
pids=()
cleanup() {
  for p in "${pids[@]}"; do kill -9 -- "-$p" 2>/dev/null || true; done
  wait 2>/dev/null || true
  rm -rf "$dir"
}
trap cleanup EXIT

hack/ensure-redis.sh --server
go build -o "$dir/" ./cmd/...
GOBIN="$dir" go install github.com/nats-io/nats-server/v2@v2.15.2
base=$((10000 + RANDOM % 20000))
nats=$base redis=$((base + 1)) http=$((base + 2))
"$dir/turnpike" secrets "$dir/secrets"
cat >"$dir/nats.conf" <<C
listen: 127.0.0.1:$nats
jetstream { store_dir: $dir/nats }
include secrets/nats/users.conf
C
"$dir/nats-server" -c "$dir/nats.conf" >"$dir/nats.log" 2>&1 & pids+=($!)
redis-server --port "$redis" --bind 127.0.0.1 --dir "$dir" --appendonly yes --appendfsync always --maxmemory-policy noeviction --aclfile "$dir/secrets/redis/users.acl" >"$dir/redis.log" 2>&1 & pids+=($!)
export TURNPIKE_NATS_URL=nats://127.0.0.1:$nats TURNPIKE_REDIS_URL=redis://127.0.0.1:$redis/0 TURNPIKE_ADDR=127.0.0.1:$http TURNPIKE_URL=http://127.0.0.1:$http
for _ in $(seq 600); do (exec 3<>"/dev/tcp/127.0.0.1/$nats" 4<>"/dev/tcp/127.0.0.1/$redis") 2>/dev/null && break; sleep 0.1; done

# as runs a command with the secrets of a user.
as() (
  set -a
  # shellcheck disable=SC1090 # made above
  . "$dir/secrets/$1/env"
  exec "${@:2}"
)

export TURNPIKE_AUTH=keys XDG_CONFIG_HOME=$dir/config # of no tokens
for user in gateway worker observer; do
  if [ "$(stat -c %a "$dir/secrets/$user/nats.nk")" != 600 ]; then
    echo "smoke: others can read the secrets of $user" >&2
    exit 1
  fi
done
as gateway "$dir/turnpike" keys create --bootstrap --file "$dir/api-key"
if "$dir/turnpike" keys create --bootstrap >"$dir/out" 2>&1 || ! grep -qi "authoriz\|NOAUTH" "$dir/out"; then
  cat "$dir/out"
  echo "smoke: a stranger may make keys" >&2
  exit 1
fi
as gateway "$dir/gateway" >"$dir/gateway.log" 2>&1 & pids+=($!)
for n in 1 2 3; do TURNPIKE_WORKER_ID=worker-$n as worker "$dir/worker" >"$dir/worker-$n.log" 2>&1 & pids+=($!); done
TURNPIKE_TOKEN=$(cat "$dir/api-key")
export TURNPIKE_TOKEN
for _ in $(seq 600); do "$dir/turnpike" ps >/dev/null 2>&1 && break; sleep 0.1; done
as gateway "$dir/turnpike" doctor
if TURNPIKE_TOKEN='' "$dir/turnpike" ps >"$dir/out" 2>&1 || ! grep -q unauthenticated "$dir/out"; then
  cat "$dir/out"
  echo "smoke: the API answers a stranger" >&2
  exit 1
fi
cat >"$dir/hello.yaml" <<'Y'
name: hello
model: {provider: scripted, responses: [{text: "Hello from the road."}]}
Y
if ! "$dir/turnpike" run "$dir/hello.yaml" "hi" | tee "$dir/out" || ! grep -q "Hello from the road." "$dir/out"; then
  tail -n 20 "$dir"/*.log
  exit 1
fi
echo "smoke: a run went through gateway, NATS, Redis and three workers"
