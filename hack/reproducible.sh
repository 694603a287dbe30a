#!/usr/bin/env bash
# Builds the three commands in two folders of different names, as the images are built, and
# fails if a byte differs. What was built stays in dist. With COLD=1 the second build
# compiles everything anew, which takes minutes.
set -euo pipefail
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'chmod -R u+w "$work"; rm -rf "$work"' EXIT

build() {
  mkdir -p "$work/$1"
  git ls-files -z --cached --others --exclude-standard | tar --null --ignore-failed-read -T - -cf - 2>/dev/null | tar -xf - -C "$work/$1"
  (cd "$work/$1" && CGO_ENABLED=0 GOBIN='' go build -trimpath -buildvcs=false -ldflags="-s -w" -o "$2/" ./cmd/gateway ./cmd/turnpike ./cmd/worker)
}

rm -rf dist
build here "$PWD/dist"
if [ -n "${COLD:-}" ]; then export GOCACHE=$work/cache; fi
build a/place/elsewhere "$work/again"
for command in gateway turnpike worker; do
  if ! cmp "dist/$command" "$work/again/$command"; then
    echo "$command is another program when it is built in another folder" >&2
    exit 1
  fi
  if grep -qaF "$work" "dist/$command"; then
    echo "$command has the folder in it where it was built" >&2
    exit 1
  fi
done
(cd dist && sha256sum gateway turnpike worker)
