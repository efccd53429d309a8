#!/bin/sh
# Programs that were linked with the installed package, moved to a folder of their own.
# other_prefix_test.sh CONSUMER_BUILD PERFPREDICT
set -eu
folder=$(mktemp -d)
trap 'rm -r "$folder"' EXIT
cp "$1/consumer" "$1/readme" "$folder"
cd "$folder"
./consumer
"$2" build dlrm --preset default -o graph.json >/dev/null
./readme graph.json
# An unreadable file is answered with one line.
[ "$(./readme missing.json | wc -l)" = 1 ]
if ./readme missing.json >/dev/null; then exit 1; fi
echo "finds its data"
