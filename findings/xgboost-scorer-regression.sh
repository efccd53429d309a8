#!/bin/bash
# xgboost-scorer 0.0.4 (npm) on models of XGBoost 1.7.4: every model is scored as a classifier.
# Guess: it returns what XGBoost predicts, also for a regression.
# Seen: the sum of the leaves goes through a sigmoid, base_score is not added: 30 is scored 1 and 0 is 0.5. Without a feature map XGBoost
# dumps features by number, so the usual names f0, f1 are not found, and a feature that is not found counts as missing without a word.
# For users: read a regression's JSON model, not its dump, and check one row against XGBoost.
source "$(dirname "$0")/common.sh"
debian xgboost=1.7.4-1 libxgboost0=1.7.4-1
npm_packages xgboost-scorer@0.0.4
for i in 1 2 3 4 5; do printf '0,1\n30,2\n'; done >train.csv
printf '0,1\n0,2\n' >ask.csv
cat >train.conf <<'CONF'
objective=reg:squarederror
eta=1
lambda=0
base_score=0
num_round=1
data="train.csv?format=csv&label_column=0"
test:data="ask.csv?format=csv&label_column=0"
CONF
{
  xgboost train.conf verbosity=0 model_out=model.json
  xgboost train.conf verbosity=0 task=pred model_in=model.json name_pred=predicted.txt
  xgboost train.conf verbosity=0 task=dump model_in=model.json name_dump=dump.json dump_format=json
} >xgboost.log 2>&1
cat >score.js <<'JS'
const Scorer = require("xgboost-scorer").default;
(async () => {
  const scorer = await Scorer.create("./dump.json");
  const scores = [];
  for (const row of [{ "0": 1 }, { "0": 2 }, { f0: 2 }, {}]) scores.push((await scorer.score(row)).toFixed(3));
  console.log("xgboost-scorer", scores.join(" "));
})();
JS
{ echo XGBoost $(cat predicted.txt); node score.js; } >seen.txt
expect <<'SEEN'
XGBoost 0 30
xgboost-scorer 0.500 1.000 0.500 0.500
SEEN
