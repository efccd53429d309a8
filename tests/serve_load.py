#!/usr/bin/env python3
"""Loads `perfpredict serve` as a careless crowd would.

serve_load.py PROGRAM [--requests 10000] [--clients 4] [--threads 2] [--costly SHARE] [--ping-limit MS]

Several clients ask at once over a socket, about every tenth request malformed in one of many ways.
Checks that every request gets one answer with its id, that equal questions get equal answers from
all, that malformed ones get an error and the connection goes on, that memory is bounded, and that
the server stops in order. Prints requests per second and latencies.

--costly: that share of the requests builds a model of 27,000 nodes, without disturbance, so that the counts of `stats`
must equal the clients'. A client in a process of its own pings meanwhile, 50 times a second; --ping-limit fails if
more than 1 % of its pings take longer.
"""

import argparse
import collections
import json
import os
import random
import select
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time

GPUS = ["a100-sxm-40gb", "h100-sxm-80gb"]
BATCHES = [64 * i for i in range(1, 41)]
MAX_REQUEST = 1 << 16

# Lines that are wrong, each in its own way; {id} where the id can still be read.
WRONG = [
    b'', b'   ', b'{', b'}', b'[]', b'null', b'nonsense', b'{"id": 1', b'"text"', b'{"id":}',
    b'{"op": "ping"} {"op": "ping"}', b'\xff\xfe\xfa', b'{"op": "\xc3\x28"}', b'\x00\x00\x00',
    b'{"op": "pi\x00ng"}', b'{"op": "\\ud800"}', b'[' * 5000, b'{"a":' * 3000,
    b'{"op": "predict", "graph": "dlrm", "gpu": "a100-sxm-40gb", "batch": 1e400}',
    b'x' * (MAX_REQUEST + 10), b'{"id": "' + b'y' * (2 * MAX_REQUEST) + b'"}',
]
WRONG_WITH_ID = [
    b'{"id": %d}', b'{"id": %d, "op": "fly"}', b'{"id": %d, "op": 7}',
    b'{"id": %d, "op": "predict"}', b'{"id": %d, "op": "ping", "extra": [1, {"deep": []}]}',
    b'{"id": %d, "op": "ping", "op": "ping"}',
    b'{"id": %d, "op": "predict", "graph": "dlrm", "gpu": "abacus"}',
    b'{"id": %d, "op": "predict", "graph": "nobody", "gpu": "a100-sxm-40gb"}',
    b'{"id": %d, "op": "predict", "graph": "dlrm", "gpu": "a100-sxm-40gb", "batch": 0}',
    b'{"id": %d, "op": "predict", "graph": "dlrm", "gpu": "a100-sxm-40gb", "batch": -3}',
    b'{"id": %d, "op": "predict", "graph": "dlrm", "gpu": "a100-sxm-40gb", "batch": "many"}',
    b'{"id": %d, "op": "predict", "graph": "dlrm", "gpu": "a100-sxm-40gb", "batch": 1.5}',
    b'{"id": %d, "op": "predict", "graph": "dlrm", "gpu": "a100-sxm-40gb",'
    b' "batch": 99999999999999999999999}',
    b'{"id": %d, "op": "predict", "graph": "dlrm", "gpu": ["a100-sxm-40gb"]}',
    b'{"id": %d, "op": "predict", "graph": "dlrm", "gpu": "a100-sxm-40gb", "strategy": "ddp"}',
    b'{"id": %d, "op": "predict", "graph": "dlrm", "gpu": "a100\\u0000"}',
    b'{"id": %d, "op": "load", "name": "evil", "file": "/etc/passwd"}',
    b'{"id": %d, "op": "load", "name": "evil", "file": "../../etc/passwd"}',
    b'{"id": %d, "op": "load", "name": "evil", "graph": {"nodes": [{"id": 1}]}}',
    b'{"id": %d, "op": "load", "name": "evil", "graph": {"nodes": 7}}',
    b'{"id": %d, "op": "load", "name": "evil", "graph": {"a": [[[[[[{}]]]]]]}}',
    b'{"id": %d, "op": "build", "name": "evil", "family": "gpt", "layers": 100000000}',
    b'{"id": %d, "op": "unload", "name": "nobody"}',
]


COSTLY = b'"op": "build", "name": "large", "family": "gpt", "preset": "gpt2-xl", "layers": 48'


def fail(message):
    sys.exit(f"ERROR: {message}")


def resident_kib(process):
    with open(f"/proc/{process.pid}/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS"))


class Client(threading.Thread):
    """Keeps a window of requests under way and checks each answer as it comes."""

    WINDOW = 16

    def __init__(self, path, number, requests, costly):
        super().__init__()
        self.connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.connection.connect(path)
        self.random = random.Random(number)
        self.first_id = number * 10_000_000
        self.requests = requests
        self.costly = costly
        self.sent = {}  # id -> (time, question), malformed ones without an id under None
        self.nameless = 0
        self.latencies = []
        self.answers = collections.defaultdict(set)
        self.wrong = 0
        self.problem = None

    def request(self, number):
        """The line, its id (None: not readable) and the question (None: malformed)."""
        if self.random.random() < 0.1:
            self.wrong += 1
            if self.random.random() < 0.4:
                return self.random.choice(WRONG), None, None
            return self.random.choice(WRONG_WITH_ID) % number, number, None
        if self.random.random() < self.costly:
            return b'{"id": %d, %s}' % (number, COSTLY), number, "costly"
        kind = self.random.random()
        if kind < 0.02:
            return b'{"id": %d, "op": "ping"}' % number, number, "ping"
        op = "explain" if kind < 0.05 else "predict"
        question = {"op": op, "graph": "dlrm", "gpu": self.random.choice(GPUS),
                    "batch": self.random.choice(BATCHES)}
        if op == "predict" and kind < 0.07:
            question["keep_ops"] = True
        key = json.dumps(question)
        question["id"] = number
        return json.dumps(question).encode(), number, key

    def check(self, line):
        answer = json.loads(line)
        if set(answer) - {"id"} not in ({"result"}, {"error"}):
            raise ValueError(f"neither result nor error: {line[:200]}")
        if answer["id"] is None:
            if "error" not in answer or self.nameless == 0:
                raise ValueError(f"nobody asked: {line[:200]}")
            self.nameless -= 1
            return
        began, key = self.sent.pop(answer["id"])
        self.latencies.append(time.perf_counter() - began)
        if (key is None) != ("error" in answer):
            raise ValueError(f"asked {key}, got {line[:200]}")
        if key is not None:
            self.answers[key].add(json.dumps(answer["result"]))
        elif set(answer["error"]) != {"code", "message"}:
            raise ValueError(f"bad error: {line[:200]}")

    def run(self):
        try:
            lines = self.connection.makefile("rb")
            for i in range(self.requests):
                line, number, key = self.request(self.first_id + i)
                if number is None:
                    self.nameless += 1
                else:
                    self.sent[number] = (time.perf_counter(), key)
                self.connection.sendall(line + b"\n")
                while len(self.sent) + self.nameless >= self.WINDOW:
                    self.check(lines.readline())
            self.connection.shutdown(socket.SHUT_WR)
            while self.sent or self.nameless:
                self.check(lines.readline())
            if lines.readline():
                raise ValueError("more answers than questions")
        except Exception as problem:  # told by the main thread
            self.problem = f"{type(problem).__name__}: {problem}"


def ask(path, question):
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.connect(path)
        connection.sendall(json.dumps(question).encode() + b"\n")
        return json.loads(connection.makefile("rb").readline())


def disturb(path, stop):
    """Clients that go away in the middle, and one that never takes its answers."""
    deaf = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    deaf.connect(path)
    deaf.setblocking(False)
    question = b'{"op": "predict", "graph": "dlrm", "gpu": "a100-sxm-40gb", "keep_ops": true}\n'
    while not stop.is_set():
        try:
            deaf.send(question * 10)
        except BlockingIOError:
            pass  # as it should be: the server reads no more
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as rude:
            rude.connect(path)
            rude.sendall(question * 5 + b'{"op": "pre')
        time.sleep(0.05)
    deaf.close()


def probe(path):
    """Pings until standard input ends; prints how long each ping took, in ms."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.connect(path)
        lines = connection.makefile("rb")
        while not select.select([sys.stdin], [], [], 0.02)[0]:
            began = time.perf_counter()
            connection.sendall(b'{"op": "ping"}\n')
            lines.readline()
            print(f"{1e3 * (time.perf_counter() - began):.3f}")


def main():
    if sys.argv[1] == "--probe":
        return probe(sys.argv[2])
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--costly", type=float, default=0)
    parser.add_argument("--ping-limit", type=float)
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "socket")
        server = subprocess.Popen(
            [options.program, "serve", "--socket", path, "--threads", str(options.threads),
             "--max-request", str(MAX_REQUEST), "--gpus", ",".join(GPUS), "--max-clients", str(options.clients + 8)],
            stdin=subprocess.DEVNULL, stderr=subprocess.PIPE)
        for _ in range(600):
            if os.path.exists(path):
                break
            time.sleep(0.1)
        built = ask(path, {"op": "build", "name": "dlrm", "family": "dlrm"})
        if "result" not in built:
            fail(f"build: {built}")
        # All that is kept for good is there before memory is looked at.
        for gpu in GPUS:
            for batch in BATCHES:
                ask(path, {"op": "predict", "graph": "dlrm", "gpu": gpu, "batch": batch})

        before = resident_kib(server)
        stop = threading.Event()
        disturber = threading.Thread(target=disturb, args=(path, stop))
        if not options.costly:
            disturber.start()
        asked_before = ask(path, {"op": "stats"})["result"]["requests"]
        prober = subprocess.Popen([sys.executable, __file__, "--probe", path], stdin=subprocess.PIPE,
                                  stdout=subprocess.PIPE, text=True)
        clients = [Client(path, i, options.requests // options.clients, options.costly)
                   for i in range(options.clients)]
        began = time.perf_counter()
        for client in clients:
            client.start()
        for client in clients:
            client.join()
        took = time.perf_counter() - began
        stop.set()
        if not options.costly:
            disturber.join()
        pings = sorted(float(line) for line in prober.communicate("")[0].split())
        stats = ask(path, {"op": "stats"})["result"]
        grown = resident_kib(server) - before

        server.send_signal(signal.SIGTERM)
        _, errors = server.communicate(timeout=60)
        for client in clients:
            if client.problem:
                fail(client.problem)
        answers = collections.defaultdict(set)
        for client in clients:
            for key, texts in client.answers.items():
                answers[key] |= texts
        for key, texts in answers.items():
            if len(texts) != 1:
                fail(f"{len(texts)} different answers to {key}")
        if server.returncode != 0 or errors:
            fail(f"exit status {server.returncode}: {errors.decode()}")
        if os.path.exists(path):
            fail("the socket file is still there")
        # Buffers of the clients and of the threads, and what malloc does not give back.
        most = (64 if not options.costly else 512) * 1024
        if grown > most and "PERFMODEL_SANITIZED" not in os.environ:
            fail(f"memory grew by {grown} KiB")

        asked = sum(client.requests for client in clients) + len(pings) + 1  # and the second stats
        if options.costly and stats["requests"] - asked_before != asked:
            fail(f"stats counts {stats['requests'] - asked_before} requests, clients asked {asked}")
        # A few requests can be over before the process that pings has started.
        if not pings and options.ping_limit:
            fail("no ping beside the requests: expected more of them")
        if pings:
            late = pings[int(0.99 * len(pings))]
            print(f"{len(pings)} pings beside: p50 {statistics.median(pings):.2f} ms, p99 {late:.2f} ms; the server's own figures:"
                  f" quick p99 {stats['quick']['p99_us'] / 1e3:.1f} ms, costly p50 {stats['costly']['p50_us'] / 1e3:.0f} ms,"
                  f" {stats['requests']} requests, resident {stats['resident_bytes'] >> 20} MiB")
            if options.ping_limit and late > options.ping_limit:
                fail(f"1 % of the pings took longer than {options.ping_limit} ms")
        latencies = sorted(t for client in clients for t in client.latencies)
        wrong = sum(client.wrong for client in clients)
        print(f"{options.requests} requests of {options.clients} clients, {wrong} of them malformed:"
              f" {options.requests / took:.0f} requests/s, {options.threads} threads")
        print(f"latency p50 {1e3 * statistics.median(latencies):.2f} ms,"
              f" p99 {1e3 * latencies[int(0.99 * len(latencies))]:.2f} ms"
              f" ({Client.WINDOW} requests of each client under way)")
        print(f"{len(answers)} different questions, each answered alike by all;"
              f" memory {before} KiB, then {grown:+d} KiB; stopped in order")


main()
