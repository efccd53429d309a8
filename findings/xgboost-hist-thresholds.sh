#!/bin/bash
# XGBoost 1.7.4: the tree method decides at which point between two training values it splits.
# Guess: in the middle, for all methods.
# Seen: "exact" splits values of 1 and 2 at 1.5; "hist" and "approx" split at 2, so 1.99 is predicted as 1 was.
# For us: a model trained by "hist" on sizes 1 Mi and 2 Mi gives all sizes between them the price of 1 Mi.
source "$(dirname "$0")/common.sh"
debian xgboost=1.7.4-1 libxgboost0=1.7.4-1
for i in 1 2 3 4 5 6 7 8 9 10; do printf '0,1\n1,2\n'; done >train.csv
printf '0,1\n0,1.49\n0,1.51\n0,1.99\n0,2\n' >ask.csv
for method in exact approx hist; do
  cat >train.conf <<CONF
tree_method=$method
objective=reg:squarederror
base_score=0
eta=1
lambda=0
max_depth=1
num_round=1
data="train.csv?format=csv&label_column=0"
test:data="ask.csv?format=csv&label_column=0"
model_out=$method.json
CONF
  xgboost train.conf verbosity=0 >xgboost.log 2>&1
  xgboost train.conf task=pred model_in=$method.json name_pred=$method.txt verbosity=0 >xgboost.log 2>&1
  echo $method "1, 1.49, 1.51, 1.99, 2 give" $(cat $method.txt)
done >seen.txt
expect <<'SEEN'
exact 1, 1.49, 1.51, 1.99, 2 give 0 0 1 1 1
approx 1, 1.49, 1.51, 1.99, 2 give 0 0 0 0 1
hist 1, 1.49, 1.51, 1.99, 2 give 0 0 0 0 1
SEEN
