#!/usr/bin/env bash
# Writes what each binary in dist is made of, as CycloneDX, and checks it against what the
# binary says of itself.
set -euo pipefail
cd "$(dirname "$0")/.."
tool=$PWD/.bin/cyclonedx-gomod
(cd hack/sbom && go build -o "$tool" github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod)
for command in gateway turnpike worker; do
  [ -x "dist/$command" ] || hack/reproducible.sh
  "$tool" bin -json -std -output "dist/$command.cdx.json" "dist/$command" 2>/dev/null
  linked=$(go version -m "dist/$command" | grep -cP '^\tdep\t')
  listed=$(grep -c '"purl": "pkg:golang/.*type=module' "dist/$command.cdx.json")
  # Beside the modules that are linked it lists the command's own and the standard library.
  if [ "$listed" -lt "$linked" ]; then
    echo "dist/$command.cdx.json lists $listed modules, $linked are linked" >&2
    exit 1
  fi
  echo "dist/$command.cdx.json: $linked modules"
done
