#!/usr/bin/env bash
# `serve --mcp` with the client of the Model Context Protocol's own SDK, from the npm registry.
#
#   bash tests/mcp_client_test.sh [PERFPREDICT]
#
# Not among the tests of ctest, since it needs node (18 or later) and the registry: tests/cli/mcp_test.py is. A nightly
# run calls it. Without node or the registry it says so and ends with 77.
set -euo pipefail
program="$(realpath "${1:-$(dirname "$0")/../build/release/bin/perfpredict}")"
client="$(realpath "$(dirname "$0")")/mcp_client_test.mjs"
command -v npm >/dev/null || { echo "left out: no npm"; exit 77; }
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
cp "$client" "$folder"
cd "$folder"
npm install --no-audit --no-fund --ignore-scripts --silent @modelcontextprotocol/sdk@1.32.2 ||
  { echo "left out: the npm registry is not reachable"; exit 77; }
node mcp_client_test.mjs "$program"
