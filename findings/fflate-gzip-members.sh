#!/bin/bash
# fflate 0.8.3 (npm, in many viewers of traces): gunzipSync cuts files of several gzip members.
# Guess: it reads all members, as gzip, zlib's gzread and pako do, or it refuses what follows the first.
# Seen: it returns the first member, cut to the length that the last one states, and no error. Its streaming Gunzip reads all.
# Traces have several members if they were compressed in parts or put together by cat. We read all and write one.
source "$(dirname "$0")/common.sh"
npm_packages fflate@0.8.3 pako@3.0.3
cat >unpack.mjs <<'JS'
import { gzipSync, gunzipSync as node } from "node:zlib";
import { Gunzip, gunzipSync } from "fflate";
import * as pako from "pako";
const text = (bytes) => Buffer.from(bytes).toString().replaceAll("\0", "_");
const both = (first, last) => Buffer.concat([gzipSync(first), gzipSync(last)]);
for (const file of [both('[{"name":"first"},', "{}]"), both("[{},", '{"name":"last"}]')]) {
  let streamed = "";
  new Gunzip((bytes) => (streamed += text(bytes))).push(file, true);
  console.log("zlib", text(node(file)), "| pako", text(pako.ungzip(file)), "| fflate", text(gunzipSync(file)), "| Gunzip", streamed);
}
JS
node unpack.mjs >seen.txt
expect <<'SEEN'
zlib [{"name":"first"},{}] | pako [{"name":"first"},{}] | fflate [{" | Gunzip [{"name":"first"},{}]
zlib [{},{"name":"last"}] | pako [{},{"name":"last"}] | fflate [{}, | Gunzip [{},{"name":"last"}]
SEEN
