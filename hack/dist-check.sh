#!/usr/bin/env bash
# Builds a release for this machine, installs it as a user does, and sees that a changed archive is
# refused.
set -euo pipefail
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
PLATFORMS="$(go env GOOS)/$(go env GOARCH)" hack/dist.sh >/dev/null
version=$(git describe --tags --always --dirty)
mkdir "$work/releases"
cp -r dist/release "$work/releases/$version"
export TURNPIKE_RELEASES=file://$work/releases TURNPIKE_BIN=$work/bin
sh "$work/releases/$version/install.sh" "$version" >/dev/null
commit=$(git rev-parse --short=12 HEAD)
for command in turnpike gateway worker; do
  said=$("$work/bin/$command" --version)
  if [[ $said != *"$commit"* && $said != *"$version"* ]]; then
    echo "$command of the release says that it is $said, want $version or $commit" >&2
    exit 1
  fi
done
"$work/bin/turnpike" licenses >"$work/licenses"
grep -q "nats.go" "$work/licenses"
for archive in "$work/releases/$version"/turnpike_*.tar.gz; do echo more >>"$archive"; done
if said=$(TURNPIKE_BIN=$work/refused sh "$work/releases/$version/install.sh" "$version" 2>&1) || [ -e "$work/refused" ]; then
  echo "a changed archive was installed" >&2
  exit 1
fi
if [[ $said != *"checksum"* ]]; then
  echo "a changed archive was refused with: $said" >&2
  exit 1
fi
ls -sh dist/release
