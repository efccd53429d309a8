#!/usr/bin/env python3
"""`serve --listen`: nothing before the login; what the log and the state folder hold.

    serve_login_test.py PERFPREDICT TRACE
"""
import json
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile
import time

PROGRAM, TOKEN = sys.argv[1], "a token of 26 characters.."
LOGIN = json.dumps({"op": "login", "token": TOKEN})
BUILD = '{"op": "build", "name": "m", "family": "mlp"}'


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Server:
    def __init__(self, folder, *flags):
        self.port = free_port()
        self.process = subprocess.Popen(
            [PROGRAM, "serve", "--listen", str(self.port), "--token-file", str(folder / "token"), "--gpus", "t4", "--log",
             str(folder / "log"), "--state", str(folder / "state"), *flags], stdin=subprocess.DEVNULL)

    def ask(self, *lines):
        """The answers to the lines of one connection, which ends with the last line."""
        for _ in range(600):
            try:
                connection = socket.create_connection(("127.0.0.1", self.port), timeout=30)
                break
            except ConnectionRefusedError:
                time.sleep(0.05)
        with connection:
            connection.sendall("".join(line + "\n" for line in lines).encode())
            connection.shutdown(socket.SHUT_WR)
            return [json.loads(line) for line in connection.makefile("rb")]

    def __enter__(self):
        return self

    def __exit__(self, *failure):
        self.process.terminate()
        assert self.process.wait(60) == 0


def codes(answers):
    return [answer.get("error", {}).get("code") for answer in answers]


def refused(folder, *flags):
    done = subprocess.run([PROGRAM, "serve", "--gpus", "t4", *flags], capture_output=True, text=True, stdin=subprocess.DEVNULL,
                          timeout=60)
    assert done.returncode == 1 and done.stderr.count("\n") == 1, done
    return done.stderr


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "token").write_text(TOKEN + "\r\n")
        with Server(folder) as server:
            for first in ('{"op": "ping"}', "", "{", json.dumps({"op": "login", "token": TOKEN[:-1]}),
                          json.dumps({"op": "login", "token": TOKEN + "."}), '{"op": "login", "token": ""}',
                          json.dumps({"op": "login", "token": [TOKEN]}), "x" * 5000):
                assert codes(server.ask(first, LOGIN, '{"op": "ping"}')) == ["unauthorized"], first
            assert not (folder / "log").read_text(), "a request before the login was answered"
            assert codes(server.ask(LOGIN, BUILD, '{"op": "ping"}', '{"op": "nothing"}')) == [None, None, None, "bad_request"]
        text = (folder / "log").read_text()
        log = [json.loads(line) for line in text.splitlines()]
        assert [(row["op"], row["error"], row["client"]) for row in log] == [
            ("build", None, "127.0.0.1"), ("ping", None, "127.0.0.1"), ("", "bad_request", "127.0.0.1")], log
        assert TOKEN not in text
        shutil.copy(sys.argv[2], folder / "trace.json")
        with Server(folder, "--allow-files", str(folder)) as server:  # has the graph, until a trace takes its name
            assert codes(server.ask(LOGIN, '{"op": "predict", "graph": "m", "gpu": "t4"}')) == [None, None]
            answer = server.ask(LOGIN, '{"op": "load", "name": "m", "file": "trace.json"}')[1]
            assert any("restart" in warning for warning in answer["result"]["warnings"]), answer
        with Server(folder) as server:
            assert codes(server.ask(LOGIN, '{"op": "predict", "graph": "m", "gpu": "t4"}')) == [None, "unknown_name"]
        for address in ("70000", "0", "+7000", "localhost:7000", "[::1]"):
            assert "a port from 1 to 65535" in refused(folder, "--listen", address, "--token-file", str(folder / "token"))
        (folder / "token").write_text("short\n")
        assert "at least 16 characters" in refused(folder, "--listen", "7000", "--token-file", str(folder / "token"))
    print("nothing is answered before the login")


main()
