#!/bin/bash
# XGBoost 1.7.4 reading CSV: a header is a sample, and words are numbers or missing.
# Guess: a header is skipped, or a field that is no number is an error with its line.
# Seen: neither, and no warning. The header is one more sample with the label 0 and no features; in a column of types bf16 is missing while fp16 and fp32
# are both 0; 7us is 7; a label that is a word, and one in quotes, is 0.
# For users: strip the header (tail -n +2), the units and the quotes, and give each type a column of 0 and 1.
source "$(dirname "$0")/common.sh"
debian xgboost=1.7.4-1 libxgboost0=1.7.4-1
cat >train.conf <<'CONF'
objective=reg:squarederror
base_score=0
eta=1
lambda=0
min_child_weight=0
num_round=1
tree_method=exact
data="train.csv?format=csv&label_column=0"
model_out=model.json
CONF
tree() { # NAME LINES: prints the tree that fits the lines; cover is the number of samples in a node
  printf "$2" >train.csv
  { xgboost train.conf; xgboost train.conf task=dump model_in=model.json name_dump=tree.txt dump_stats=1; } >xgboost.log 2>&1
  echo "$1:" $(grep -v booster tree.txt | sed 's/yes=.*missing=/missing=/; s/gain=[^,]*,//')
}
{
  tree "no header" '10,1\n20,2\n'
  tree "header" 'time_us,bytes\n10,1\n20,2\n'
  tree "types" '10,fp16,1\n20,fp32,1\n30,bf16,1\n'
  tree "units" '10us,7us\n20us,9us\n'
  tree "words and quotes as labels" 'gemm,1\n"10",2\n20,3\n'
} >seen.txt
expect <<'SEEN'
no header: 0:[f0<1.5] missing=1,cover=2 1:leaf=10,cover=1 2:leaf=20,cover=1
header: 0:[f0<4.00000095] missing=2,cover=3 1:[f0<1.5] missing=4,cover=2 3:leaf=10,cover=1 4:leaf=20,cover=1 2:leaf=-0,cover=1
types: 0:[f0<-9.99999997e-07] missing=1,cover=3 1:leaf=30,cover=1 2:leaf=15,cover=2
units: 0:[f0<8] missing=1,cover=2 1:leaf=10,cover=1 2:leaf=20,cover=1
words and quotes as labels: 0:[f0<2.5] missing=1,cover=3 1:leaf=-0,cover=2 2:leaf=20,cover=1
SEEN
