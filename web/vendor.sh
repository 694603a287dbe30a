#!/usr/bin/env bash
# Fetches the libraries of the page anew, in the versions below, into vendor. Needs npm.
# The bundle is built from what is committed there, so a build needs Go alone.
set -euo pipefail
cd "$(dirname "$0")"
versions=(preact@11.2.0 @preact/signals@2.11.4 @preact/signals-core@1.14.5 marked@18.2.1 dompurify@3.4.18
  @codemirror/state@6.7.6 @codemirror/view@6.43.15 @codemirror/language@6.13.1 @codemirror/streamparser@6.0.0 @codemirror/commands@6.11.1
  @codemirror/autocomplete@6.20.4 @codemirror/lint@6.9.8 @codemirror/lang-yaml@6.1.3 @lezer/common@1.5.5 @lezer/highlight@1.2.5 @lezer/lr@1.4.12
  @lezer/yaml@1.0.4 style-mod@4.1.4 w3c-keyname@2.2.8 crelt@1.0.7 @marijn/find-cluster-break@1.0.4)
files=(
  preact/LICENSE preact/dist/preact.mjs preact/src/index.d.ts preact/src/jsx.d.ts preact/src/dom.d.ts
  preact/hooks/dist/hooks.mjs preact/hooks/src/index.d.ts
  preact/jsx-runtime/dist/jsxRuntime.mjs preact/jsx-runtime/src/index.d.ts
  @preact/signals/LICENSE @preact/signals/dist/signals.mjs @preact/signals/dist/signals.d.ts
  @preact/signals-core/LICENSE @preact/signals-core/dist/signals-core.mjs @preact/signals-core/dist/signals-core.d.ts
  marked/LICENSE marked/lib/marked.esm.js marked/lib/marked.d.ts
  dompurify/LICENSE dompurify/dist/purify.es.mjs dompurify/dist/purify.es.d.mts
  style-mod/LICENSE style-mod/src/style-mod.js style-mod/src/style-mod.d.ts w3c-keyname/LICENSE w3c-keyname/index.js
  crelt/LICENSE crelt/index.js @marijn/find-cluster-break/LICENSE @marijn/find-cluster-break/src/index.js
)
for p in @codemirror/{state,view,language,streamparser,commands,autocomplete,lint,lang-yaml} @lezer/{common,highlight,lr,yaml}; do
  files+=("$p"/LICENSE "$p"/dist/index.js "$p"/dist/index.d.ts)
done
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
npm install --prefix "$dir" --no-save --no-package-lock --no-audit --no-fund --ignore-scripts --loglevel=error "${versions[@]}" >/dev/null
rm -rf vendor && mkdir vendor
(cd "$dir/node_modules" && cp --parents "${files[@]}" "$OLDPWD/vendor/")
find vendor -name '*.mjs' -o -name '*.esm.js' | xargs sed -i '/^\/\/# sourceMappingURL/d'
printf '%s\n' "${versions[@]}" > vendor/versions.txt
