#!/bin/sh
# Builds and runs the consumers with pkg-config alone.
# pkg_config_test.sh LIBDIR SOURCES OUT CC CXX [FLAG...]
set -eu
libdir=$1 sources=$2 out=$3 cc=$4 cxx=$5
shift 5
export PKG_CONFIG_PATH="$libdir/pkgconfig"
mkdir -p "$out"
pkg-config --exists --print-errors perfmodel perfmodel-c
PERFMODEL_DATA=$(pkg-config --variable=datadir perfmodel)  # static libraries know the folder of CMake's config alone
export PERFMODEL_DATA
# Flags are words: no quotes around them.
"$cc" -std=c11 -Wall -Wextra -pedantic -Werror "$@" $(pkg-config --cflags perfmodel-c) "$sources/c_consumer.c" \
  -o "$out/c_consumer" $(pkg-config --libs perfmodel-c) -Wl,-rpath,"$libdir"
"$cxx" -std=c++20 "$@" $(pkg-config --cflags perfmodel) "$sources/consumer.cpp" \
  -o "$out/consumer" $(pkg-config --libs perfmodel)
c=$("$out/c_consumer")
cpp=$("$out/consumer")
echo "$c"
[ "$c" = "$cpp" ] && echo "both agree"
