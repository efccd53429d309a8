#!/bin/bash
# @huggingface/tasks 0.21.54 (npm): the TFLOPS of its table of GPUs are of different pipes.
# Guess: dense half precision of tensor cores for all, so that the column ranks boards for training.
# Seen: T4 with tensor cores (65), V100, A100, H100 and B200 without (28, 78, 268, 497), MI250 with matrix cores (362), A30 in fp32 (10).
# So a T4 is 2.3 times a V100 and 6 times an A30, an MI250 beats an H100, and an H200, the same chip as an H100, is slower.
# For users: compare boards by one pipe of one source; `perfpredict gpus NAME` prints each rate with its type.
source "$(dirname "$0")/common.sh"
npm_packages @huggingface/tasks@0.21.54
cat >table.mjs <<'JS'
import { SKUS } from "@huggingface/tasks";
const row = (maker, name) => console.log(name, SKUS.GPU[maker][name].tflops);
for (const name of ["T4", "V100", "A30", "A100", "H100", "H200", "B200"]) row("NVIDIA", name);
row("AMD", "MI250");
JS
node table.mjs >seen.txt
expect <<'SEEN'
T4 65.13
V100 28.26
A30 10.32
A100 77.97
H100 267.6
H200 241.3
B200 496.6
MI250 362.1
SEEN
