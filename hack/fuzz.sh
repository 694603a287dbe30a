#!/usr/bin/env bash
# Fuzzes every decoder that meets the outside, two packages side by side:
#   hack/fuzz.sh 10s       each target for ten seconds, guided by what it reaches
#   hack/fuzz.sh 2000x     each with two thousand inputs, which takes about a minute for
#                          all, and not guided: to compile everything with counters takes
#                          minutes
# What a fuzzer finds lies in the testdata of its package: commit it with the mending.
set -euo pipefail
cd "$(dirname "$0")/.."
each=$1 guide=-fuzz=Fuzz
targets=$(grep -rP --include='*_test.go' '^func Fuzz\w+\(' cmd examples internal pkg | sed -E 's|^(.*)/[^/]*:func (Fuzz[[:alnum:]_]+)\(.*|\1 \2|' | sort)
count=$(wc -l <<<"$targets")
if [ "${each%x}" != "$each" ]; then guide=-fuzz=; fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export work each guide

# A package is compiled once for all of its targets.
fuzz() {
  local package=$1 binary=$work/${1//\//_}.test
  shift
  go test -c "$guide" -ldflags='-s -w' -o "$binary" "./$package"
  cd "$package"
  for name in "$@"; do
    if ! "$binary" -test.run '^$' -test.fuzz "^$name\$" -test.fuzztime "$each" -test.fuzzcachedir "$work/cache" -test.parallel 1 >"$binary.log" 2>&1; then
      cat "$binary.log" >&2
      echo "$name of $package has found something: go test ./$package -run $name" >&2
      return 1
    fi
  done
  echo "$package: $*"
}
export -f fuzz

echo "$count targets, $each each"
awk '{names[$1] = names[$1] " " $2} END {for (p in names) print p names[p]}' <<<"$targets" | sort | xargs -P 2 -d '\n' -I{} bash -euo pipefail -c "fuzz {}"
