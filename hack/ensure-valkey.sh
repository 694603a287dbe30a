#!/usr/bin/env bash
# Makes sure that tests find a valkey-server, or says what to do. Debian 12 has it among
# its backports, which are asked without being added to the machine's sources.
set -euo pipefail
if command -v valkey-server >/dev/null; then exit 0; fi
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
  echo "The tests of Redis' relatives need valkey-server: install it." >&2
  exit 1
fi
echo "installing valkey-server"
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
chmod 755 "$tmp"
mkdir -p "$tmp/lists/partial"
cat /etc/apt/sources.list >"$tmp/sources" 2>/dev/null || true
apt=(-qq -o "Dir::Etc::sourcelist=$tmp/sources" -o "Dir::State::lists=$tmp/lists" -o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache= -o APT::Sandbox::User=root)
apt-get "${apt[@]}" update >/dev/null
if [ -z "$(apt-cache "${apt[@]}" show valkey-server 2>/dev/null)" ]; then
  release=$(. /etc/os-release && echo "$VERSION_CODENAME")
  mirror=$(cat /etc/apt/sources.list /etc/apt/sources.list.d/* 2>/dev/null | grep -v '^#' | grep -oE 'https?://[^ ]+/debian/?( |$)' | head -n 1 | tr -d ' ' || true)
  [ -n "$mirror" ] || { echo "The tests of Redis' relatives need valkey-server, which the sources of apt do not have: install it." >&2; exit 1; }
  echo "deb $mirror $release-backports main" >>"$tmp/sources"
  apt-get "${apt[@]}" update >/dev/null
fi
DEBIAN_FRONTEND=noninteractive apt-get "${apt[@]}" install -y --no-install-recommends valkey-server >/dev/null
