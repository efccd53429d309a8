#!/bin/bash
# SimGrid 3.32, SMPI: by default an all-reduce sends whole messages to one rank.
# Guess: large collectives take what MPI libraries choose, so an all-reduce moves 2 (n - 1) / n of its bytes over each link, twice an all-gather.
# Seen: an all-gather and an all-to-all are as fast as a ring. A reduce sends seven whole messages to rank 0, an all-reduce is a reduce and a broadcast
# in three rounds, a reduce-scatter is a reduce and a scatter. On 8 hosts they take 5.7 and 9 times as long as rings, on more hosts longer still.
# For users: give it smpi/allreduce:lr and smpi/reduce_scatter:ompi_ring, which are rings, before comparing data parallel jobs.
source "$(dirname "$0")/common.sh"
debian libsimgrid3.32=3.32-2+b2
apt-get download libsimgrid-dev=3.32-2+b2 >download.log 2>&1  # without the 15,000 headers of Boost that it depends on
dpkg -x libsimgrid-dev_*.deb root
sed "s#/usr/lib/x86_64-linux-gnu/simgrid#$work/root&#g" root/usr/bin/smpirun >replay.sh
cat >platform.xml <<'XML'
<?xml version='1.0'?>
<!DOCTYPE platform SYSTEM "https://simgrid.org/simgrid.dtd">
<platform version="4.1">
  <cluster id="cluster" prefix="host" suffix="" radical="0-15" speed="1Gf" bw="10GBps" lat="1us" sharing_policy="SPLITDUPLEX"/>
</platform>
XML
printf 'host%d\n' $(seq 0 15) >hosts
simulate() { # RANKS OPTION OPERATION: prints the seconds
  for ((rank = 0; rank < $1; rank++)); do
    printf '%d init\n%d %s\n%d finalize\n' $rank $rank "$3" $rank >rank$rank.trace
    echo rank$rank.trace
  done >traces
  bash replay.sh -np "$1" -platform platform.xml -hostfile hosts -replay traces --cfg=network/model:CM02 --cfg=network/TCP-gamma:0 --cfg="$2" \
    --log=root.thresh:error --log=smpi_replay.thresh:info 2>&1 | sed -n 's/.*Simulation time/ /p'
}
part=12500000
parts="$part $part $part $part $part $part $part $part"
{
  echo "8 hosts, 10 GB/s each way, 100 MB; a ring needs 0.00875 s, for an all-reduce 0.0175 s"
  default=smpi/coll-selector:default
  echo "by default: all-gather" $(simulate 8 $default "allgather $part $part"), all-to-all $(simulate 8 $default "alltoall $part $part"), \
    reduce $(simulate 8 $default "reduce 100000000 0 0"), reduce-scatter $(simulate 8 $default "reducescatter $parts 0"), \
    all-reduce $(simulate 8 $default "allreduce 100000000 0")
  echo "smpi/reduce_scatter:ompi_ring: reduce-scatter" $(simulate 8 smpi/reduce_scatter:ompi_ring "reducescatter $parts 0")
  echo "smpi/allreduce:lr: all-reduce" $(simulate 8 smpi/allreduce:lr "allreduce 100000000 0")
  for ranks in 4 16; do echo "$ranks hosts, by default: all-reduce" $(simulate $ranks $default "allreduce 100000000 0"); done
} >seen.txt
expect <<'SEEN'
8 hosts, 10 GB/s each way, 100 MB; a ring needs 0.00875 s, for an all-reduce 0.0175 s
by default: all-gather 0.009190, all-to-all 0.009190, reduce 0.070002, reduce-scatter 0.078754, all-reduce 0.100008
smpi/reduce_scatter:ompi_ring: reduce-scatter 0.009202
smpi/allreduce:lr: all-reduce 0.018403
4 hosts, by default: all-reduce 0.050006
16 hosts, by default: all-reduce 0.190010
SEEN
