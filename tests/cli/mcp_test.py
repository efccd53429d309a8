#!/usr/bin/env python3
"""`serve --mcp` as an agent speaks to it: over standard input and output, a message per line.

    mcp_test.py PERFPREDICT TRACE
"""
import json
import subprocess
import sys


class Client:
    def __init__(self, *flags):
        self.process = subprocess.Popen([sys.argv[1], "serve", "--mcp", "--gpus", "h100-sxm-80gb", *flags], text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.number = 0

    def send(self, text):
        self.process.stdin.write(text + "\n")
        self.process.stdin.flush()

    def read(self):
        return json.loads(self.process.stdout.readline())

    def ask(self, method, **params):
        self.number += 1
        self.send(json.dumps({"jsonrpc": "2.0", "id": self.number, "method": method, "params": params}))
        answer = self.read()
        assert answer["id"] == self.number and answer["jsonrpc"] == "2.0", answer
        return answer

    def close(self):
        assert self.ask("ping")["result"] == {}  # goes on after what came before
        self.process.stdin.close()
        assert self.process.stdout.read() == "" and self.process.wait(60) == 0

    def call(self, tool, **arguments):
        return self.ask("tools/call", name=tool, arguments=arguments)["result"]


client = Client("--max-request", "4096")
started = client.ask("initialize", protocolVersion="2025-06-18", capabilities={}, clientInfo={"name": "test", "version": "1"})
assert started["result"]["serverInfo"]["name"] == "perfpredict", started
client.send('{"jsonrpc": "2.0", "method": "notifications/initialized"}')  # gets no answer
assert client.ask("ping")["result"] == {}
tools = {tool["name"]: tool for tool in client.ask("tools/list")["result"]["tools"]}
assert {"build", "predict", "duration", "layout_rank", "ask"} <= set(tools), sorted(tools)
assert not client.call("build", name="g", family="gpt", preset="gpt2", batch=8)["isError"]
predicted = client.call("predict", graph="g", gpu="h100-sxm-80gb")
text = predicted["content"][0]["text"]
assert "ms per step" in text and "nine of ten" in text and "Evidence" in text, text
assert len(text) < 1000, text
memory = client.call("ask", command="memory", arguments=["g"], options={"gpu": "h100-sxm-80gb"})
assert memory["structuredContent"]["document"]["schema"] == "perfmodel-memory", memory
client.send("x" * 5000)
assert client.read()["error"]["code"] == -32600
client.close()
deep = Client()  # brackets that no stack holds
deep.send('{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "load", "arguments": ' + "[" * 300_000 + "]" * 300_000 + "}}")
assert deep.read()["error"]["code"] == -32600
assert deep.ask("tools/call", name="gpus", arguments={"op": "ping"})["error"]["code"] == -32602
assert not deep.call("load", name="t", file=sys.argv[2])["isError"]  # a trace, whose prediction has no memory
assert "ms per step" in deep.call("predict", graph="t", gpu="h100-sxm-80gb")["content"][0]["text"]
deep.close()
refused = subprocess.run([sys.argv[1], "serve", "--mcp", "--socket", "s"], capture_output=True, text=True)
assert refused.returncode == 2, refused
print("ok")
