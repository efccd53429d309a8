#!/usr/bin/env python3
"""A server, and programs that write files or sweep, when the system refuses them something.

    server_faults_test.py PROGRAM LIBRARY [--only WORD]

LIBRARY is the built failing_calls.c. Each system call fails in turn, once and for a while; every request
then gets an answer, an error or a closed connection, a server that goes on answers all of them
afterwards, and none burns the processor while it waits. Files are old or whole. Then a crowd: more
clients than the limit of descriptors lets in, and clients that ask too often.
"""
import argparse
import contextlib
import errno
import json
import os
import pathlib
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import time

GPU = "h100-sxm-80gb"
QUESTIONS = [{"op": "ping"}, {"op": "build", "name": "d", "family": "mlp"},
             {"op": "predict", "graph": "d", "gpu": GPU},
             {"op": "ask", "command": "memory", "arguments": ["d"], "options": {"gpu": GPU}}]
FOREVER = 1_000_000
# Call, reason, first failing call, how many fail.
SERVER_FAULTS = [(call, reason, first, count)
                 for call, reason in [("poll", "ENOMEM"), ("poll", "EINVAL"), ("poll", "EINTR"), ("accept4", "EMFILE"),
                                      ("accept4", "ENFILE"), ("accept4", "ECONNABORTED"), ("accept4", "ENOBUFS"),
                                      ("posix_spawn", "EAGAIN"), ("posix_spawn", "ENOMEM"),
                                      ("posix_spawn_file_actions_adddup2", "ENOMEM"), ("memfd_create", "EMFILE"),
                                      ("recv", "ECONNRESET"), ("send", "EPIPE"), ("waitid", "ECHILD"),
                                      ("waitpid", "ECHILD"), ("mkdtemp", "ENOSPC")]
                 for first, count in [(1, 1), (2, 10)]]
START_FAULTS = [("socket", "EMFILE"), ("listen", "EADDRINUSE"), ("eventfd", "EMFILE")]
WRITER_FAULTS = [("open", "EACCES"), ("open", "EMFILE"), ("write", "ENOSPC"), ("write", "EIO"), ("fsync", "EIO"),
                 ("close", "EIO"), ("rename", "EACCES")]


class Failure(Exception):
    pass


def expect(true, what):
    if not true:
        raise Failure(what)


class Server:
    def __init__(self, folder, *flags, fault=None, before=None):
        self.path = os.path.join(folder, f"socket{Server.number}")
        self.done = self.path + ".failed"
        Server.number += 1
        environment = dict(os.environ)
        if fault:
            call, reason, first, count = fault
            environment.update(LD_PRELOAD=options.library, FAILING_CALL_DONE=self.done,
                               FAILING_CALL=f"{call} {getattr(errno, reason)} {first} {count}")
        self.process = subprocess.Popen(
            [options.program, "serve", "--socket", self.path, "--gpus", GPU, "--threads", "2", *map(str, flags)],
            env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, preexec_fn=before)
        for _ in range(600):
            if os.path.exists(self.path) or self.process.poll() is not None:
                break
            time.sleep(0.02)

    number = 0

    def cpu_seconds(self):
        fields = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def connect(self):
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.settimeout(20)
        for _ in range(500):  # the file is there a moment before the server listens
            with contextlib.suppress(ConnectionRefusedError):
                connection.connect(self.path)
                return connection
            time.sleep(0.02)
        raise Failure("the server does not listen")

    def ask(self, question):
        """The answer; None: the server closed the connection."""
        try:
            with self.connect() as connection:
                connection.sendall(json.dumps(question).encode() + b"\n")
                line = connection.makefile("rb").readline()
        except (ConnectionResetError, BrokenPipeError):
            return None
        except socket.timeout as late:
            raise Failure(f"no answer to {question}") from late
        return json.loads(line) if line else None

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        _, errors = self.process.communicate(timeout=30)
        return self.process.returncode, errors.decode()


def server_fault(folder, fault):
    server = Server(folder, fault=fault)
    try:
        for question in QUESTIONS:
            answer = server.ask(question)
            expect(answer is None or ("result" in answer) != ("error" in answer), f"neither result nor error: {answer}")
        expect(os.path.exists(server.done) or fault[2] > 1, "the call was never made")
        for _ in range(2 * fault[3] + 20):  # until the faults are over
            if server.ask({"op": "ping"}) and all("result" in (server.ask(question) or {}) for question in QUESTIONS):
                break
        for question in QUESTIONS:
            expect("result" in (server.ask(question) or {}), f"not answered afterwards: {question}")
        before = server.cpu_seconds()
        time.sleep(0.3)
        expect(server.cpu_seconds() - before < 0.1, "it burns the processor")
    finally:
        status, errors = server.stop()
    expect(status == 0 and not errors, f"exit status {status}: {errors}")


def never_again(folder, call, reason):
    """A call that fails for good: no answers, perhaps, but no spin and an end in order."""
    server = Server(folder, fault=(call, reason, 3, FOREVER))
    clients = [server.connect() for _ in range(4)]
    for client in clients:
        client.sendall(b'{"op": "ping"}\n')
    before = server.cpu_seconds()
    time.sleep(1)
    used = server.cpu_seconds() - before
    for client in clients:
        client.close()
    server.process.kill()
    server.process.communicate()
    expect(used < 0.3, f"{used:.1f} s of the processor in a second")


def start_fault(folder, call, reason):
    server = Server(folder, fault=(call, reason, 1, 1))
    _, errors = server.process.communicate(timeout=20)
    expect(server.process.returncode == 1 and errors.decode().count("\n") == 1, f"found {server.process.returncode}: {errors}")


def writer_fault(folder, call, reason):
    """Each call of one run fails in turn, until a run makes fewer."""
    target, new = pathlib.Path(folder) / "out.json", pathlib.Path(folder) / "new.json"
    words = ["build", "mlp", "--batch", "64", "-o"]
    subprocess.run([options.program, *words, new], check=True, stdout=subprocess.DEVNULL)
    failed = pathlib.Path(folder) / "failed"
    for first in range(1, 200):
        target.write_bytes(b"old")
        failed.unlink(missing_ok=True)
        done = subprocess.run([options.program, *words, target], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                              stderr=subprocess.PIPE, text=True, timeout=60,
                              env=dict(os.environ, LD_PRELOAD=options.library, FAILING_CALL_DONE=str(failed),
                                       FAILING_CALL=f"{call} {getattr(errno, reason)} {first} 1"))
        text = target.read_bytes()
        expect(text in (b"old", new.read_bytes()), f"half a file after call {first}")
        expect(done.returncode in (0, 1), f"exit status {done.returncode} after call {first}")
        expect(done.stderr.count("\n") == done.returncode, f"call {first}: {done.stderr!r}")
        if done.returncode == 0:
            expect(text != b"old", f"status 0 without the file, call {first}")
        expect(not list(pathlib.Path(folder).glob("*.tmp")), "a temporary file is left")
        if not failed.exists():
            expect(first > 1, "the call was never made")
            return
    raise Failure("more calls than expected")


def sweep_fault(folder, call, reason):
    """Some call of a sweep fails: it says so in one line, and a second run completes the same rows."""
    folder = pathlib.Path(folder)
    spec = folder / "spec.json"
    spec.write_text(json.dumps({
        "schema": "perfmodel-sweep", "version": 1, "graphs": [{"name": "m", "build": "mlp", "options": {}}], "gpus": ["t4"],
        "rewrites": [{"batch": [8, 16, 32]}], "strategies": [{"strategy": "none"}]}))
    run = lambda target, **more: subprocess.run([options.program, "sweep", spec, "-o", target], stdin=subprocess.DEVNULL,
                                                stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, timeout=60, **more)
    whole = folder / "whole.csv"
    expect(run(whole).returncode == 0, "no sweep without faults")
    failed, target = folder / "failed", folder / "rows.csv"
    first, step = 1, 1
    while True:  # the first ones each, then fewer: many are of files of data
        for file in (failed, target):
            file.unlink(missing_ok=True)
        done = run(target, env=dict(os.environ, LD_PRELOAD=options.library, FAILING_CALL_DONE=str(failed),
                                    FAILING_CALL=f"{call} {getattr(errno, reason)} {first} 1"))
        expect(done.returncode in (0, 1) and done.stderr.count("\n") == done.returncode,
               f"call {first}: exit status {done.returncode}, {done.stderr!r}")
        expect(not target.exists() or target.read_bytes() == whole.read_bytes(), f"half a file after call {first}")
        expect(done.returncode == 1 or target.exists(), f"status 0 without the file, call {first}")
        if not failed.exists():
            expect(first > 1, "the call was never made")
            return
        again = run(target)
        expect(again.returncode == 0 and target.read_bytes() == whole.read_bytes(), f"not completed after call {first}: {again.stderr!r}")
        first, step = first + step, step + (first > 8)


def crowd(folder):
    """2,000 clients at 1,024 descriptors."""
    limit = lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (1024, 1024))
    server = Server(folder, "--max-clients", 2000, before=limit)
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 8192), hard))
    clients, answered, refused = [], 0, 0
    for _ in range(2000):
        connection = server.connect()
        with contextlib.suppress(BrokenPipeError):  # refused already; the answer can still be read
            connection.sendall(b'{"op": "ping"}\n')
        clients.append(connection)
    for connection in clients:
        answer = json.loads(connection.makefile("rb").readline())
        answered += "result" in answer
        refused += answer.get("error", {}).get("code") == "busy"
    for connection in clients:
        connection.close()
    expect(answered + refused == 2000 and answered > 800, f"{answered} answered, {refused} refused")
    again = sum("result" in (server.ask({"op": "ping"}) or {}) for _ in range(200))
    expect(again == 200, f"after the crowd only {again} of 200 are answered")
    before = server.cpu_seconds()
    time.sleep(0.5)
    expect(server.cpu_seconds() - before < 0.1, "it burns the processor after the crowd")
    status, errors = server.stop()
    expect(status == 0 and not errors, f"exit status {status}: {errors}")
    print(f"2,000 clients at 1,024 descriptors: {answered} answered, {refused} refused, all answered afterwards")


def soft_limit(folder):
    """A low soft limit is raised."""
    limit = lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (64, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    server = Server(folder, "--max-clients", 200, before=limit)
    clients = [server.connect() for _ in range(200)]
    for connection in clients:
        connection.sendall(b'{"op": "ping"}\n')
    answers = [json.loads(connection.makefile("rb").readline()) for connection in clients]
    for connection in clients:
        connection.close()
    expect(all("result" in answer for answer in answers), "not all 200 clients were answered")
    server.stop()


def limits_of_a_client(folder):
    server = Server(folder, "--max-connections", 2, "--max-rate", 50)
    first = server.connect()
    began = time.monotonic()
    first.sendall(b'{"op": "ping"}\n' * 150)
    lines = first.makefile("rb")
    expect(all("result" in json.loads(lines.readline()) for _ in range(150)), "a request was lost")
    took = time.monotonic() - began
    expect(1.5 < took < 10, f"150 requests at 50 per second took {took:.1f} s")
    second, third = server.connect(), server.connect()
    answer = json.loads(third.makefile("rb").readline())
    expect(answer["error"]["code"] == "busy" and "2 connections" in answer["error"]["message"], f"found {answer}")
    for connection in (first, second, third):
        connection.close()
    server.stop()


def main():
    cases = {f"server, {c} {r} from {f}, {n} times": lambda d, fault=(c, r, f, n): server_fault(d, fault)
             for c, r, f, n in SERVER_FAULTS}
    cases |= {f"no spin, {c} {r}": lambda d, c=c, r=r: never_again(d, c, r)
              for c, r in [("poll", "ENOMEM"), ("poll", "EINVAL"), ("accept4", "EMFILE"), ("accept4", "ENFILE")]}
    cases |= {f"start, {c} {r}": lambda d, c=c, r=r: start_fault(d, c, r) for c, r in START_FAULTS}
    cases |= {f"writer, {c} {r}": lambda d, c=c, r=r: writer_fault(d, c, r) for c, r in WRITER_FAULTS}
    cases |= {f"sweep, {c} {r}": lambda d, c=c, r=r: sweep_fault(d, c, r) for c, r in WRITER_FAULTS}
    cases |= {"crowd": crowd, "soft limit": soft_limit, "limits of a client": limits_of_a_client}
    problems = 0
    for name, case in cases.items():
        if options.only not in name:
            continue
        with tempfile.TemporaryDirectory() as folder:
            try:
                case(folder)
            except (Failure, OSError, ValueError, subprocess.SubprocessError) as problem:
                problems += 1
                print(f"{name}: {problem}")
    print("every fault was survived" if not problems else f"{problems} of {len(cases)} faults were not survived")
    return 1 if problems else 0


parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("program")
parser.add_argument("library")
parser.add_argument("--only", default="")
options = parser.parse_args()
sys.exit(main())
