#!/usr/bin/env python3
"""Commands over `serve`: the documents of the command line, and nothing that a client has no right to.

    serve_ask_test.py PERFPREDICT DATA
"""
import json
import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import time

PROGRAM, DATA = sys.argv[1], pathlib.Path(sys.argv[2])
TABLES = "table,rows,dim,pooling\nuser,1000000,64,1\nclicks,4000000,64,32.5\n"


def run(*words, cwd=None):
    done = subprocess.run([PROGRAM, *map(str, words)], text=True, capture_output=True, cwd=cwd)
    assert done.returncode == 0, (words, done.stderr)
    return done.stdout


class Server:
    """One on a socket, with folders of its own for temporary files."""

    def __init__(self, folder, *flags):
        self.path, self.temporary = str(folder / "socket"), folder / "temporary"
        self.temporary.mkdir(exist_ok=True)
        self.process = subprocess.Popen(
            [PROGRAM, "serve", "--socket", self.path, "--threads", "2", "--gpus", "t4,h100-sxm-80gb", *flags],
            stdin=subprocess.DEVNULL, env=dict(os.environ, TMPDIR=str(self.temporary)))
        for _ in range(600):
            if os.path.exists(self.path):
                break
            time.sleep(0.05)
        self.connection = socket.socket(socket.AF_UNIX)
        self.connection.connect(self.path)
        self.lines = self.connection.makefile("rb")

    def ask(self, **question):
        self.connection.sendall(json.dumps(question).encode() + b"\n")
        return json.loads(self.lines.readline())

    def command(self, command, *arguments, files=None, name=None, **options):
        question = dict(op="ask", command=command, arguments=list(arguments), options=options)
        question.update({key: value for key, value in (("files", files), ("name", name)) if value})
        return self.ask(**question)

    def __enter__(self):
        return self

    def __exit__(self, *failure):
        self.connection.close()
        self.process.terminate()
        assert self.process.wait(60) == 0
        assert os.listdir(self.temporary) == [], "what commands wrote is left"


def result(answer):
    assert "result" in answer, answer
    return answer["result"]


def error(answer, code, text):
    assert "error" in answer, str(answer)[:300]
    found = answer["error"]
    assert found["code"] == code and text in found["message"], found


def documents(server, folder):
    """Answers are what the command line prints, of graphs that only the server has."""
    result(server.ask(op="build", name="job", family="gpt", preset="gpt2", batch=4, layers=2))
    run("build", "gpt", "--preset", "gpt2", "--batch", 4, "--layers", 2, "-o", folder / "job")
    for command, words, options in (
            ("memory", ["job"], {"gpu": "t4"}),
            ("whatif", ["job"], {"gpus": ["t4", "h100-sxm-80gb"], "batch": [4, 8]}),
            ("predict", ["job"], {"gpu": "h100-sxm-80gb", "world": 8, "strategy": "ddp"}),
            ("layout rank", ["gpt2"], {"gpu": "h100-sxm-80gb", "world": 8, "global_batch": 64, "tp": 2, "pp": 1})):
        flags = [part for key, value in options.items()
                 for part in ("--" + key.replace("_", "-"),
                              ",".join(map(str, value)) if isinstance(value, list) else str(value))]
        expected = json.loads(run(*command.split(), *words, *flags, "--json", cwd=folder))
        found = result(server.command(command, *words, **options))["document"]
        for document in (found, expected):
            document.get("search", document).pop("seconds", None)  # how long it searched
        assert found == expected, (command, str(found)[:300], str(expected)[:300])
    ranked = result(server.command("shard rank", "tables.csv", files={"tables.csv": TABLES}, gpu="h100-sxm-80gb",
                                   world=4, batch_per_gpu=512))["document"]
    assert ranked["schema"].startswith("perfmodel-") and len(ranked["plans"]) > 0, str(ranked)[:300]
    advice = result(server.command("optimize", "job", gpu="h100-sxm-80gb", allow="fusion", time_budget=5))["document"]
    assert "combination" in advice, list(advice)
    # A rewrite becomes a graph of the server's, about which all other questions can be asked.
    made = result(server.command("rewrite", "job", name="halves", batch=2))
    assert made["graph"]["name"] == "halves" and made["graph"]["batch"] == 2, made
    halves = result(server.ask(op="predict", graph="halves", gpu="t4"))
    assert halves == {**result(server.ask(op="predict", graph="job", gpu="t4", batch=2)), "warnings": halves["warnings"]}
    text = result(server.command("gpus", "t4", help=True))["document"]
    assert "perfpredict gpus" in text or "Usage" in text, text


def refusals(server, secret):
    """No file of the server's is read, by whatever way it is named."""
    error(server.command("predict", str(secret), gpu="t4"), "impossible", "below the allowed folder")
    error(server.command("memory", "job", gpu="../../" + secret.name), "impossible", "below the allowed folder")
    error(server.command("memory", "job", gpu="t4", limit=["../x"]), "impossible", "below the allowed folder")
    spec = {"schema": "perfmodel-sweep", "version": 1, "graphs": [str(secret)], "gpus": ["t4"]}
    sweep = dict(files={"spec.json": spec}, output="rows.csv")
    error(server.command("sweep", "spec.json", **sweep), "io", "expected a readable")
    indices = dict(files={"tables.csv": TABLES}, gpu="t4", world=2, batch_per_gpu=64)
    error(server.command("shard rank", "tables.csv", **indices, indices=f"user={secret}"), "format", "cannot be read")
    error(server.command("rewrite", "job", name="../out", batch=2), "impossible", "/name")
    error(server.command("rewrite", "job", name="job", batch=2), "impossible", "/name")
    error(server.command("memory", "job", name="none", gpu="t4"), "bad_request", "output")
    error(server.command("memory", "job", gpu="abacus"), "unknown_name", "abacus")
    error(server.command("memory", "job", colour="red"), "bad_request", "colour")
    error(server.command("serve"), "bad_request", "/command")
    error(server.command("memory", "x", files={"../x": "{}"}), "impossible", "without a folder")
    error(server.ask(op="ask", command="memory", arguments="job"), "bad_request", "/arguments: expected a list")
    deep = '{"op":"ask","command":"memory","options":{"gpu":' + "[" * 900 + "]" * 900 + "}}\n"
    server.connection.sendall(deep.encode())
    error(json.loads(server.lines.readline()), "impossible", "brackets within brackets")
    assert result(server.ask(op="health"))["status"] == "ok"


def main():
    os.environ["PERFMODEL_DATA"] = str(DATA)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        secret = folder / "elsewhere.json"
        run("build", "mlp", "--widths", "64-64", "--batch", 8, "-o", secret)
        with Server(folder) as server:
            documents(server, folder)
            refusals(server, secret)
        # Files below an allowed folder may be read, not written; others stay closed.
        allowed = folder / "allowed"
        allowed.mkdir()
        graph = allowed / "graph.json"
        graph.write_bytes(secret.read_bytes())
        with Server(folder, "--allow-files", str(allowed)) as server:
            assert result(server.command("memory", str(graph), gpu="t4"))["document"]["peak_allocated_bytes"] > 0
            error(server.command("memory", str(secret), gpu="t4"), "impossible", "below the allowed folder")
            error(server.command("rewrite", str(graph), batch=4, output=str(allowed / "new.json")), "io", "")
            assert not (allowed / "new.json").exists()
        # Time and memory end the command, not the server.
        endless = dict(files={"spec.json": {"schema": "perfmodel-sweep", "version": 1, "gpus": ["t4"],
                                            "graphs": [{"name": "m", "build": "gpt", "options": {"preset": "gpt2-xl"}}],
                                            "rewrites": [{"batch": list(range(1, 2000))}]}}, output="rows.csv")
        with Server(folder, "--timeout-ms", "700") as server:
            error(server.command("sweep", "spec.json", **endless), "timeout", "within 700 ms")
            assert result(server.ask(op="health"))["status"] == "ok"
            children = pathlib.Path(f"/proc/{server.process.pid}/task").glob("*/children")
            assert [file.read_text() for file in children if file.read_text()] == [], "a command goes on"
        if "PERFMODEL_SANITIZED" not in os.environ:
            with Server(folder, "--max-command-mib", "64") as server:
                answer = server.command("sweep", "spec.json", **endless)
                assert answer["error"]["code"] in ("out_of_memory", "impossible"), answer
                assert "memory" in answer["error"]["message"], answer
                assert result(server.ask(op="health"))["status"] == "ok"
    print("commands of clients: documents as on the command line, files and limits kept")


main()
