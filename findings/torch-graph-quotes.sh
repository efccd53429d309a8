#!/bin/bash
# PyTorch 1.13.1: a label with a quote or a backslash makes a file that no JSON parser takes.
# Guess: names are escaped, at least in one of the two files.
# Seen: neither the execution graph nor the profiler's trace escapes them; 'layer "1"' and a Windows path break the whole file.
# For users: labels of record_function are best plain words; our readers name the line, the column and the node.
source "$(dirname "$0")/common.sh"
torch_recorder
/usr/bin/python3 - >seen.txt <<'PYTHON'
import json, torch
from record import record_text
x = torch.ones(4, 4)
def parses(text):
    try:
        json.loads(text)
        return "parses"
    except json.JSONDecodeError as error:
        return error.msg
for label in ("layer 1", 'layer "1"', "models\\layer1"):
    def program():
        with torch.profiler.record_function(label):
            x.neg()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        program()
    profile.export_chrome_trace("trace.json")
    print(label, "| graph:", parses(record_text(program)), "| trace:", parses(open("trace.json").read()))
PYTHON
expect <<'SEEN'
layer 1 | graph: parses | trace: parses
layer "1" | graph: Expecting ',' delimiter | trace: Expecting ',' delimiter
models\layer1 | graph: Invalid \escape | trace: Invalid \escape
SEEN
