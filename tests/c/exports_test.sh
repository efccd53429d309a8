#!/bin/sh
# The library exports the functions of its header, all of them and nothing else.
# exports_test.sh NM LIBRARY HEADER
set -eu
exported=$("$1" -D --defined-only "$2" | awk '$2 != "A" {print $3}' | sed 's/@.*//' | sort)
declared=$(grep -v '^ \*' "$3" | grep -o 'perfmodel_[a-z_]*(' | tr -d '(' | sort -u)
unversioned=$("$1" -D --defined-only --with-symbol-versions "$2" | awk '$2 != "A" && $3 !~ /@@PERFMODEL_[0-9]+$/ {print $3}')
if [ -n "$unversioned" ]; then
  echo "without a version: $unversioned" && exit 1
fi
if [ "$exported" = "$declared" ]; then
  echo "$(echo "$exported" | wc -l) functions exported"
else
  echo "exported: $exported" && echo "declared: $declared" && exit 1
fi
