#!/bin/sh
# Installs the commands of Turnpike: curl -fsSL …/install.sh | sh -s -- v0.1.0
# TURNPIKE_BIN is the folder for them (default ~/.local/bin), TURNPIKE_RELEASES the address of the
# releases. It installs nothing whose checksum is not that of the release.
set -eu
version=${1:?"name the version to install, such as v0.1.0"}
bin=${TURNPIKE_BIN:-$HOME/.local/bin}
releases=${TURNPIKE_RELEASES:-https://github.com/turnpike-dev/turnpike/releases/download}

fail() {
  echo "install: $1" >&2
  exit 1
}

case $(uname -s) in
  Linux) system=linux ;;
  Darwin) system=darwin ;;
  *) fail "there is no build for $(uname -s): build from source with go build ./cmd/..." ;;
esac
case $(uname -m) in
  x86_64 | amd64) arch=amd64 ;;
  aarch64 | arm64) arch=arm64 ;;
  *) fail "there is no build for $(uname -m): build from source with go build ./cmd/..." ;;
esac
name=turnpike_${version}_${system}_$arch
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
for file in "$name.tar.gz" SHA256SUMS; do
  curl -fsSL -o "$dir/$file" "$releases/$version/$file" || fail "cannot fetch $releases/$version/$file: check the version and the network"
done
cd "$dir"
grep " $name.tar.gz\$" SHA256SUMS >sum || fail "SHA256SUMS of $version does not name $name.tar.gz"
if command -v sha256sum >/dev/null; then sha256sum -c sum >/dev/null 2>&1; else shasum -a 256 -c sum >/dev/null 2>&1; fi ||
  fail "the checksum of $name.tar.gz is not that of the release: fetch it again, and report it if that does not help"
tar -xzf "$name.tar.gz"
mkdir -p "$bin"
for command in turnpike gateway worker; do
  # A running program is replaced, not overwritten.
  cp "$name/$command" "$bin/.$command.new"
  mv "$bin/.$command.new" "$bin/$command"
done
echo "installed turnpike, gateway and worker $version in $bin"
case :$PATH: in
  *":$bin:"*) ;;
  *) echo "add it to your path: export PATH=\"$bin:\$PATH\"" ;;
esac
