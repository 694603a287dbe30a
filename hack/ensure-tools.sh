#!/usr/bin/env bash
# Makes sure that make, git and a C compiler are there, or says what to do. The race
# detector needs the compiler.
set -euo pipefail
missing=()
command -v make >/dev/null || missing+=(make)
command -v git >/dev/null || missing+=(git)
command -v "${CC:-gcc}" >/dev/null || missing+=(gcc libc6-dev)
if [ ${#missing[@]} = 0 ]; then exit 0; fi
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
  echo "Not found: ${missing[*]}. Install what is missing." >&2
  exit 1
fi
echo "installing ${missing[*]}"
apt-get update -qq >/dev/null
DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
