#!/usr/bin/env python3
"""A server on TCP with a token, its log, what a restart keeps, and files that commands write: serve_tcp_test.py PROGRAM."""
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time

TOKEN = "0123456789abcdef-token"
GPU = "h100-sxm-80gb"


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Server:
    def __init__(self, folder):
        self.port = free_port()
        self.process = subprocess.Popen(
            [sys.argv[1], "serve", "--listen", str(self.port), "--token-file", f"{folder}/token", "--gpus", GPU, "--threads", "2",
             "--state", f"{folder}/state", "--log", f"{folder}/log"], stdin=subprocess.DEVNULL, stderr=subprocess.PIPE)
        for _ in range(600):
            try:
                socket.create_connection(("127.0.0.1", self.port)).close()
                return
            except ConnectionRefusedError:
                time.sleep(0.05)

    def ask(self, *lines):
        """Answers to the lines; it ends where the server closes."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=60) as connection:
            file = connection.makefile("rw")
            answers = []
            for line in lines:
                try:
                    file.write(json.dumps(line) + "\n")
                    file.flush()
                    text = file.readline()
                except ConnectionError:  # it had closed before this line came
                    text = ""
                if not text:
                    return answers
                answers.append(json.loads(text))
            return answers

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(30) == 0, self.process.stderr.read()


with tempfile.TemporaryDirectory() as folder:
    with open(f"{folder}/token", "w") as file:
        file.write(TOKEN + "\n")
    login = {"op": "login", "token": TOKEN}
    predict = {"op": "predict", "graph": "a/b c", "gpu": GPU}
    server = Server(folder)
    for stranger in ({"op": "ping"}, {"op": "login", "token": TOKEN[:-1]}, {"op": "login", "token": ""}, {"op": "login"}):
        first, *others = server.ask(stranger, {"op": "ping"})
        assert first["error"]["code"] == "unauthorized" and not others, (stranger, first, others)
    answers = server.ask(login, {"op": "build", "name": "a/b c", "family": "mlp"}, predict,
                         {"op": "build", "name": "gone", "family": "mlp"}, {"op": "unload", "name": "gone"},
                         {"op": "build", "name": "job", "family": "mlp"},
                         {"op": "ask", "command": "report", "arguments": ["job"], "options": {"gpu": GPU, "output": "x.html"},
                          "outputs": ["x.html"]},
                         {"op": "ask", "command": "gpus", "outputs": ["../log"]})
    assert all("result" in answer for answer in answers[:-1]), answers
    assert answers[6]["result"]["outputs"]["x.html"].startswith("<!"), answers[6]
    assert answers[7]["error"]["code"] == "impossible", answers[7]
    server.stop()
    server = Server(folder)
    _, again, gone, stats = server.ask(login, predict, {"op": "predict", "graph": "gone", "gpu": GPU}, {"op": "stats"})
    assert again == answers[2], "the kept graph answers otherwise"
    assert gone["error"]["code"] == "unknown_name" and stats["result"]["graphs"] == 2, (gone, stats)
    assert stats["result"]["log_lines_lost"] == 0
    server.stop()
    with open(f"{folder}/log") as file:
        lines = [json.loads(line) for line in file]
    assert os.stat(f"{folder}/log").st_mode & 0o777 == 0o600
    assert [line["op"] for line in lines].count("predict") == 3 and lines[0]["client"] == "127.0.0.1", lines
    assert TOKEN not in json.dumps(lines)
refused = subprocess.run([sys.argv[1], "serve", "--listen", "7000", "--gpus", GPU], capture_output=True, text=True)
assert refused.returncode == 1 and "--token-file" in refused.stderr and refused.stderr.count("\n") == 1, refused.stderr
print("ok")
