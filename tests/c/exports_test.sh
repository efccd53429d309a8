#!/bin/sh
# The library exports the functions of its header, all of them and nothing else.
# exports_test.sh NM LIBRARY HEADER
set -eu
exported=$("$1" -D --defined-only "$2" | awk '{print $3}' | sed 's/@.*//' | sort)
declared=$(grep -v '^ \*' "$3" | grep -o 'perfmodel_[a-z_]*(' | tr -d '(' | sort -u)
if [ "$exported" = "$declared" ]; then
  echo "$(echo "$exported" | wc -l) functions exported"
else
  echo "exported: $exported" && echo "declared: $declared" && exit 1
fi
