#!/bin/bash
# METIS 5.1.0 and Scotch 7.0.3 (Debian 12): weights add up in 32 bits, even in Scotch for 64, and no error says so.
# Guess: sums of weights have 64 bits, or a graph whose weights are too large is refused.
# Seen: 32 equal layers in a row are cut into four stages of eight while their weights sum up to less than 2^31. From 2^31 on, METIS and Scotch
# put all of them into one stage, or make stages of 24, 3, 3 and 2, and exit with 0. Scotch built for 64 bits still does so at 2^32.
# METIS refuses a single weight of 2^31 and more as negative.
# For users: weigh tables and layers in MiB or in microseconds, never in bytes or FLOP, and add up the parts that come back.
source "$(dirname "$0")/common.sh"
debian metis=5.1.0.dfsg-7 libmetis5=5.1.0.dfsg-7 scotch=7.0.3-2 libscotch-7.0=7.0.3-2
libraries=$work/root/usr/lib/x86_64-linux-gnu
stages() { # prints the number of layers in each stage, the largest first
  awk '{ layers[$NF]++ } END { for (stage = 0; stage < 4; stage++) printf "%d\n", layers[stage] }' | sort -rn
}
for weight in 8 67108863 67108864 134217728 200000000; do
  awk -v weight=$weight 'BEGIN { print 32, 31, "010"; for (i = 1; i <= 32; i++) print weight, (i > 1 ? i - 1 : ""), (i < 32 ? i + 1 : "") }' >chain.metis
  awk -v weight=$weight 'BEGIN { print 0; print 32, 62; print 0, "001"
    for (i = 0; i < 32; i++) print weight, (i > 0) + (i < 31), (i > 0 ? i - 1 : ""), (i < 31 ? i + 1 : "") }' >chain.scotch
  gpmetis chain.metis 4 >metis.log
  echo "32 layers of $weight, METIS:" $(stages <chain.metis.part.4)
  for program in scotch_gpart scotch_gpart-int64; do
    LD_LIBRARY_PATH=$libraries/${program/_gpart/}:$libraries $program 4 chain.scotch chain.parts 2>scotch.log
    echo "32 layers of $weight, $program:" $(tail -n +2 chain.parts | stages)
  done
done >seen.txt
expect <<'SEEN'
32 layers of 8, METIS: 8 8 8 8
32 layers of 8, scotch_gpart: 8 8 8 8
32 layers of 8, scotch_gpart-int64: 8 8 8 8
32 layers of 67108863, METIS: 8 8 8 8
32 layers of 67108863, scotch_gpart: 8 8 8 8
32 layers of 67108863, scotch_gpart-int64: 8 8 8 8
32 layers of 67108864, METIS: 32 0 0 0
32 layers of 67108864, scotch_gpart: 32 0 0 0
32 layers of 67108864, scotch_gpart-int64: 8 8 8 8
32 layers of 134217728, METIS: 32 0 0 0
32 layers of 134217728, scotch_gpart: 32 0 0 0
32 layers of 134217728, scotch_gpart-int64: 32 0 0 0
32 layers of 200000000, METIS: 24 3 3 2
32 layers of 200000000, scotch_gpart: 24 3 3 2
32 layers of 200000000, scotch_gpart-int64: 32 0 0 0
SEEN
