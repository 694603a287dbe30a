#!/usr/bin/env bash
# Builds the images of compose.yaml without pulling one: the commands as static
# binaries in the Dockerfile's last stage, nats-server from its Go module,
# redis-server from this machine. It prints the settings that make compose.yaml use
# them.
set -euo pipefail
cd "$(dirname "$0")/.."
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

# carry copies a program and the libraries that it loads into a root directory.
carry() {
  local root=$1 program lib
  program=$(command -v "$2")
  install -D "$program" "$root/usr/bin/$2"
  { ldd "$program" 2>/dev/null || true; } | { grep -o '/[^ ]*' || true; } | while read -r lib; do install -D "$lib" "$root$lib"; done
}

# image makes an image of a root directory.
image() {
  local name=$1 root=$2 change=()
  shift 2
  for c in "$@"; do change+=(--change "$c"); done
  tar -C "$root" --owner 0 --group 0 -c . | docker import "${change[@]}" - "$name" >/dev/null
}

hack/ensure-redis.sh --server
if ! command -v busybox >/dev/null; then
  if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
    echo "build-images: install busybox-static, for the health check of NATS" >&2
    exit 1
  fi
  apt-get update -qq >/dev/null
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq busybox-static >/dev/null
fi

hack/dist.sh commands "$dir/commands"
export CGO_ENABLED=0
for command in gateway worker turnpike; do
  install -D "$dir/commands/$command" "$dir/$command/app"
  ca=/etc/ssl/certs/ca-certificates.crt
  if [ ! -f "$ca" ]; then ca=/dev/null; fi
  install -D -m 644 "$ca" "$dir/$command/etc/ssl/certs/ca-certificates.crt"
  install -D -m 644 -t "$dir/$command/src" LICENSE
  install -D -m 644 -t "$dir/$command/src/internal/notice" internal/notice/third-party.txt
  # The last stage of the Dockerfile; its first needs an image of Go.
  sed -n '/^FROM scratch/,$ { s/ --from=build//; p }' deployments/Dockerfile >"$dir/Dockerfile"
  docker build -q -t "turnpike-$command" -f "$dir/Dockerfile" "$dir/$command" >/dev/null
done

go build -trimpath -o "$dir/nats/usr/bin/nats-server" github.com/nats-io/nats-server/v2
carry "$dir/nats" busybox
ln -s busybox "$dir/nats/usr/bin/wget"
image turnpike-nats "$dir/nats" "ENV PATH=/usr/bin" "VOLUME /data"

carry "$dir/redis" redis-server
carry "$dir/redis" redis-cli
image turnpike-redis "$dir/redis" "ENV PATH=/usr/bin" "VOLUME /data"

echo "export TURNPIKE_NATS_IMAGE=turnpike-nats TURNPIKE_REDIS_IMAGE=turnpike-redis"
