#!/usr/bin/env bash
# Builds the images and runs the test of containers, with an engine of its own where
# none answers. Where there can be no engine it fails in CI, and says that it is
# skipped elsewhere.
set -euo pipefail
cd "$(dirname "$0")/.."
code=0
hack/with-engine.sh bash -euo pipefail -c '
  deployments/build-images.sh >/dev/null
  go test -tags containers -count=1 -timeout 10m -v ./internal/verify/containers' || code=$?
if [ "$code" = 3 ] && [ -z "${CI:-}" ]; then
  echo "containers: skipped"
  exit 0
fi
exit "$code"
