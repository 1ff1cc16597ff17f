#!/bin/sh
# Installs what the Node examples of the documents import into .cache/node, from the lock file. Does nothing when that is done already.
set -eu
cd "$(dirname "$0")/../.."
from=internal/docsnippets/testdata
to=.cache/node
cmp -s "$from/package-lock.json" "$to/installed.json" && exit 0
mkdir -p "$to"
cp "$from/package.json" "$from/package-lock.json" "$to/"
npm ci --prefix "$to" --no-audit --no-fund --ignore-scripts --loglevel=error
cp "$from/package-lock.json" "$to/installed.json"
