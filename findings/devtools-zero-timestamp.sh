#!/bin/bash
# @paulirish/trace_engine 0.0.65 (npm, the engine of Chrome's performance panel): a time stamp of 0 is no time.
# Guess: the bounds of a trace are its first and its last moment.
# Seen: events at 0 do not count, so a trace that begins at 0 begins with its second event, and a step that spans all is cut at its left.
# Traces of PyTorch begin hours after boot and are whole; timelines made by programs (ours, simulators') begin at 0.
# For users: open timelines in ui.perfetto.dev, or add a microsecond to every ts.
source "$(dirname "$0")/common.sh"
npm_packages @paulirish/trace_engine@0.0.65
cat >bounds.mjs <<'JS'
import { analyzeEvents } from "@paulirish/trace_engine/analyze-trace.mjs";
const slice = (name, ts, dur) => ({ ph: "X", cat: "kernel", name, pid: 1, tid: 1, ts, dur, args: {} });
for (const start of [0, 1]) {
  const events = [slice("step", start, 100), slice("gemm", start + 40, 10)];
  const { min, max } = (await analyzeEvents(events)).parsedTrace.data.Meta.traceBounds;
  console.log("a step of 100 us from", start, "has the bounds", min, max);
}
JS
node bounds.mjs >seen.txt
expect <<'SEEN'
a step of 100 us from 0 has the bounds 40 50
a step of 100 us from 1 has the bounds 1 101
SEEN
