#!/usr/bin/env bash
# Builds a release into dist/release: for each platform an archive of the three commands with
# licences and SBOMs, the clients for Python and TypeScript, install.sh, and SHA256SUMS. The version
# is that of the tag, or of the commit. PLATFORMS="linux/amd64" builds those only. With the
# arguments "commands DIR" it builds only the commands for this machine's Linux into DIR, for images.
set -euo pipefail
cd "$(dirname "$0")/.."
platforms=${PLATFORMS:-linux/amd64 linux/arm64 darwin/amd64 darwin/arm64}
release=dist/release

# commands builds the three commands for a platform into a folder.
commands() {
  CGO_ENABLED=0 GOOS=${1%/*} GOARCH=${1#*/} GOBIN='' go build -trimpath -buildvcs=true -ldflags="-s -w" -o "$2/" ./cmd/gateway ./cmd/turnpike ./cmd/worker
}

if [ "${1:-}" = commands ]; then
  commands "linux/$(go env GOARCH)" "$2"
  exit
fi

version=$(git describe --tags --always --dirty)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
rm -rf "$release"
mkdir -p "$release"
tool=$PWD/.bin/cyclonedx-gomod
(cd hack/sbom && go build -o "$tool" github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod)
for platform in $platforms; do
  name=turnpike_${version}_${platform/\//_}
  commands "$platform" "$work/$name"
  mkdir "$work/$name/sbom"
  for command in gateway turnpike worker; do
    "$tool" bin -json -std -output "$work/$name/sbom/$command.cdx.json" "$work/$name/$command" 2>/dev/null
  done
  cp LICENSE README.md internal/notice/third-party.txt "$work/$name/"
  # The same commit gives the same archive.
  tar --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$(git log -1 --format=%ct)" -C "$work" -cf - "$name" | gzip -9n >"$release/$name.tar.gz"
  rm -rf "${work:?}/$name"
done
if command -v python3 >/dev/null; then
  (cd clients/python && python3 -c "import build_wheel; build_wheel.build_wheel('../../$release'); build_wheel.build_sdist('../../$release')")
else
  echo "dist: without the client for Python, which needs python3" >&2
fi
if [ -d clients/typescript/node_modules ]; then
  (cd clients/typescript && npm pack --silent --pack-destination "../../$release" >/dev/null)
else
  echo "dist: without the client for TypeScript: run npm ci --ignore-scripts in clients/typescript first" >&2
fi
cp hack/install.sh "$release/"
(cd "$release" && sha256sum -- * >SHA256SUMS && cat SHA256SUMS)
