#!/bin/bash
# llvm-mca 15 for AMD GPUs: it counts issues, not rates.
# Guess: an exponential is priced at a quarter of a multiply-add, and fp64 on gfx906 (MI50) at half, as AMD's data sheets say.
# Seen: 100 of each take 100 cycles (of four clocks) and a last latency, on every chip; so do loads of 16 bytes a lane. Matrix instructions
# are right: 16 cycles on gfx90a and 8 on gfx940 for 32x32x8.
# For users: its cycles bound a kernel of matrix instructions, not one of exponentials (softmax, GELU) or of loads.
source "$(dirname "$0")/common.sh"
debian llvm-15=1:15.0.6-4+b1 libllvm15=1:15.0.6-4+b1
cycles() { # CHIP INSTRUCTION
  echo "$2" >one.s
  echo "$1 ${2%% *}:" $(root/usr/lib/llvm-15/bin/llvm-mca -mtriple=amdgcn -mcpu="$1" -iterations=100 one.s | grep 'Total Cycles')
}
{
  cycles gfx906 'v_fma_f32 v0, v1, v2, v3'
  cycles gfx906 'v_fma_f64 v[0:1], v[2:3], v[4:5], v[6:7]'
  cycles gfx906 'v_exp_f32 v0, v1'
  cycles gfx906 'global_load_dwordx4 v[0:3], v[4:5], off'
  cycles gfx90a 'v_exp_f32 v0, v1'
  cycles gfx90a 'v_mfma_f32_32x32x8f16 a[0:15], v[0:1], v[2:3], a[0:15]'
  cycles gfx940 'v_mfma_f32_32x32x8_f16 a[0:15], v[0:1], v[2:3], a[0:15]'
} >seen.txt
expect <<'SEEN'
gfx906 v_fma_f32: Total Cycles: 101
gfx906 v_fma_f64: Total Cycles: 108
gfx906 v_exp_f32: Total Cycles: 104
gfx906 global_load_dwordx4: Total Cycles: 180
gfx90a v_exp_f32: Total Cycles: 104
gfx90a v_mfma_f32_32x32x8f16: Total Cycles: 1601
gfx940 v_mfma_f32_32x32x8_f16: Total Cycles: 801
SEEN
