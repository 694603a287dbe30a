#!/usr/bin/env bash
# Starts NATS, Redis, a gateway and three workers as processes, with the settings
# of compose.yaml, sends a run through them, and takes them down.
set -euo pipefail
cd "$(dirname "$0")/.."
dir=$(mktemp -d)
pids=()
cleanup() {
  for p in "${pids[@]}"; do kill -9 "$p" 2>/dev/null || true; done
  wait 2>/dev/null || true
  rm -rf "$dir"
}
trap cleanup EXIT

hack/ensure-redis.sh --server
go build -o "$dir/" ./cmd/...
GOBIN="$dir" go install github.com/nats-io/nats-server/v2@v2.15.2
base=$((10000 + RANDOM % 20000))
nats=$base redis=$((base + 1)) http=$((base + 2))
"$dir/nats-server" -js -a 127.0.0.1 -p "$nats" -sd "$dir/nats" >"$dir/nats.log" 2>&1 & pids+=($!)
redis-server --port "$redis" --bind 127.0.0.1 --dir "$dir" --appendonly yes --appendfsync always --maxmemory-policy noeviction >"$dir/redis.log" 2>&1 & pids+=($!)
export TURNPIKE_NATS_URL=nats://127.0.0.1:$nats TURNPIKE_REDIS_URL=redis://127.0.0.1:$redis/0 TURNPIKE_ADDR=127.0.0.1:$http TURNPIKE_URL=http://127.0.0.1:$http
for _ in $(seq 100); do (exec 3<>"/dev/tcp/127.0.0.1/$nats" 4<>"/dev/tcp/127.0.0.1/$redis") 2>/dev/null && break; sleep 0.1; done
"$dir/gateway" >"$dir/gateway.log" 2>&1 & pids+=($!)
for n in 1 2 3; do TURNPIKE_WORKER_ID=worker-$n "$dir/worker" >"$dir/worker-$n.log" 2>&1 & pids+=($!); done
for _ in $(seq 100); do "$dir/turnpike" ps >/dev/null 2>&1 && break; sleep 0.1; done
"$dir/turnpike" doctor
cat >"$dir/hello.yaml" <<'Y'
name: hello
model: {provider: scripted, responses: [{text: "Hello from the road."}]}
Y
if ! "$dir/turnpike" run "$dir/hello.yaml" "hi" | tee "$dir/out" || ! grep -q "Hello from the road." "$dir/out"; then
  tail -n 20 "$dir"/*.log
  exit 1
fi
echo "smoke: a run went through gateway, NATS, Redis and three workers"
