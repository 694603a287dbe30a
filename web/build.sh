#!/usr/bin/env bash
# Builds the page from its sources into internal/gateway/ui, or into the folder that is named.
# The same sources give the same bytes.
set -euo pipefail
cd "$(dirname "$0")"
out=${1:-../internal/gateway/ui}
mkdir -p "$out"
find "$out" -type f ! -name '*.go' -delete
cp src/index.html src/favicon.svg "$out"/
lib=$PWD/vendor
aliases=()
for p in "$lib"/@codemirror/*/dist/index.js "$lib"/@lezer/*/dist/index.js; do
  name=${p#"$lib"/}
  aliases+=("--alias:${name%/dist/index.js}=$p")
done
aliases+=(--alias:style-mod="$lib/style-mod/src/style-mod.js" --alias:w3c-keyname="$lib/w3c-keyname/index.js")
aliases+=(--alias:crelt="$lib/crelt/index.js" --alias:@marijn/find-cluster-break="$lib/@marijn/find-cluster-break/src/index.js")
../.bin/esbuild src/app.tsx src/style.css --bundle --minify --splitting --format=esm --target=es2022 --charset=utf8 \
  --legal-comments=eof --log-level=warning --outdir="$out" --chunk-names='[name]-[hash]' \
  --tsconfig-raw='{"compilerOptions":{"jsx":"react-jsx","jsxImportSource":"preact"}}' \
  --alias:preact="$lib/preact/dist/preact.mjs" --alias:preact/hooks="$lib/preact/hooks/dist/hooks.mjs" \
  --alias:preact/jsx-runtime="$lib/preact/jsx-runtime/dist/jsxRuntime.mjs" \
  --alias:@preact/signals="$lib/@preact/signals/dist/signals.mjs" --alias:@preact/signals-core="$lib/@preact/signals-core/dist/signals-core.mjs" \
  --alias:marked="$lib/marked/lib/marked.esm.js" --alias:dompurify="$lib/dompurify/dist/purify.es.mjs" "${aliases[@]}"
