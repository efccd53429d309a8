#!/bin/bash
# SimGrid 3.32: a link carries neither its bandwidth nor its latency.
# Guess: a message takes latency + size / bandwidth.
# Seen: the default model, LV08, is of TCP on Ethernet: 13.01 times the latency, 97 % of the bandwidth less what acknowledgements take, and at most a
# window of 4 MiB per two latencies. 100 GB/s over 1 ms carry 2 GB/s; a byte over 2 us (InfiniBand, NVLink over a switch) takes 26 us.
# For users: give a cluster's collectives the options network/model:CM02 and network/TCP-gamma:0; then both figures are met.
source "$(dirname "$0")/common.sh"
debian python3-simgrid=3.32-2+b2 libsimgrid3.32=3.32-2+b2
cat >send.py <<'PYTHON'
import sys
from simgrid import Actor, Engine, Host, LinkInRoute, Mailbox, NetZone
bandwidth, latency, size = float(sys.argv[1]), float(sys.argv[2]), int(float(sys.argv[3]))
engine = Engine(["send", "--log=root.thresh:error"] + sys.argv[4:])
zone = NetZone.create_full_zone("zone")
hosts = [zone.create_host(name, 1e9).seal() for name in ("a", "b")]
link = zone.create_link("link", bandwidth).set_latency(latency).seal()
zone.add_route(hosts[0].netpoint, hosts[1].netpoint, None, None, [LinkInRoute(link)], True)
zone.seal()
Actor.create("sender", hosts[0], lambda: Mailbox.by_name("box").put("message", size))
Actor.create("receiver", hosts[1], lambda: Mailbox.by_name("box").get())
engine.run()
print(f"{bandwidth:.0e} B/s, {latency:.0e} s, {size:.0e} B:", f"{Engine.clock:.3g} s, latency + size / bandwidth = {latency + size / bandwidth:.3g} s")
PYTHON
{
  /usr/bin/python3 send.py 1e9 1e-5 1e9
  /usr/bin/python3 send.py 1e11 1e-3 1e10
  /usr/bin/python3 send.py 2.5e10 2e-6 1
  echo options:
  /usr/bin/python3 send.py 1e11 1e-3 1e10 --cfg=network/model:CM02 --cfg=network/TCP-gamma:0 --cfg=network/crosstraffic:0
  /usr/bin/python3 send.py 2.5e10 2e-6 1 --cfg=network/model:CM02 --cfg=network/TCP-gamma:0
} >seen.txt 2>simgrid.log
expect <<'SEEN'
1e+09 B/s, 1e-05 s, 1e+09 B: 1.08 s, latency + size / bandwidth = 1 s
1e+11 B/s, 1e-03 s, 1e+10 B: 4.93 s, latency + size / bandwidth = 0.101 s
2e+10 B/s, 2e-06 s, 1e+00 B: 2.6e-05 s, latency + size / bandwidth = 2e-06 s
options:
1e+11 B/s, 1e-03 s, 1e+10 B: 0.101 s, latency + size / bandwidth = 0.101 s
2e+10 B/s, 2e-06 s, 1e+00 B: 2e-06 s, latency + size / bandwidth = 2e-06 s
SEEN
