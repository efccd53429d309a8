#!/usr/bin/env python3
"""Answers a queue's question before a job is taken: does it fit its GPUs, and will it end in time?

    admission_webhook.py PERFPREDICT [--port 8080]     # POST an AdmissionReview of Kubernetes to it
    admission_webhook.py PERFPREDICT - < review.json   # one review on standard input

A job says what it trains and where in the usual places: the annotations perfmodel/build (the keys of `serve`'s
`build`), perfmodel/samples and perfmodel/strategy, the label nvidia.com/gpu.product or the annotation perfmodel/gpu,
the GPUs of its containers times spec.parallelism, and spec.activeDeadlineSeconds. It is refused if its memory does not
fit, or if more than one of ten cases ends after the deadline; jobs without annotations are none of our business.

What it is: an example. It speaks plain HTTP, one review at a time; a cluster wants TLS in front of it, and a
failurePolicy. The duration has no queues, failures, checkpoints or slow data in it, and `needed` memory no other user.
"""
import argparse
import http.server
import json
import subprocess
import sys


class Predictor:
    """`perfpredict serve` as a child: one JSON line asks, one answers."""

    def __init__(self, program):
        self.process = subprocess.Popen([program, "serve"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, **question):
        self.process.stdin.write(json.dumps(question) + "\n")
        self.process.stdin.flush()
        answer = json.loads(self.process.stdout.readline())
        if "error" in answer:
            raise ValueError(answer["error"]["message"])
        return answer["result"]


def gpus_of(spec):
    limits = [c.get("resources", {}).get("limits", {}) for c in spec["template"]["spec"]["containers"]]
    return spec.get("parallelism", 1) * sum(int(limit.get("nvidia.com/gpu", 0)) for limit in limits)


def judge(predictor, job):
    """(allowed, what to tell)"""
    notes, spec = job["metadata"].get("annotations", {}), job["spec"]
    if "perfmodel/build" not in notes:
        return True, "no annotation perfmodel/build: not judged"
    selector = spec["template"]["spec"].get("nodeSelector", {})
    gpu = notes.get("perfmodel/gpu") or selector.get("nvidia.com/gpu.product", "").replace("-", " ")
    predictor.ask(op="build", name="job", **json.loads(notes["perfmodel/build"]))
    more = {"strategy": notes["perfmodel/strategy"]} if "perfmodel/strategy" in notes else {}
    row = predictor.ask(op="duration", graph="job", gpus=[gpu], worlds=[gpus_of(spec)],
                        samples=float(notes["perfmodel/samples"]), **more)["rows"][0]
    if row["error"]:
        return False, row["error"]
    if not row["fits"]:
        return False, (f"needs {row['needed_bytes'] / 2**30:.1f} GiB per GPU, "
                       f"{gpu} has {row['device_bytes'] / 2**30:.1f}")
    half, most = row["duration_s"]["p50"], row["duration_s"]["p90"]
    text = f"{row['samples_per_s']:.0f} samples/s; {half / 3600:.1f} h, in nine of ten cases at most {most / 3600:.1f} h"
    deadline = spec.get("activeDeadlineSeconds")
    if deadline is not None and most > deadline:
        return False, f"{text}; the deadline is {deadline / 3600:.1f} h"
    return True, text


def answer(predictor, review):
    request = review["request"]
    try:
        allowed, text = judge(predictor, request["object"])
    except (AttributeError, KeyError, TypeError, ValueError) as problem:
        allowed, text = False, f"{type(problem).__name__}: {problem}"
    response = {"uid": request["uid"], "allowed": allowed}
    response.update({"warnings": [text]} if allowed else {"status": {"code": 403, "message": text}})
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}


def serve(predictor, port):
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            try:
                review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                body = json.dumps(answer(predictor, review)).encode()
            except (KeyError, TypeError, ValueError) as problem:
                return self.send_error(400, f"expected an AdmissionReview, found {type(problem).__name__}")
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    http.server.HTTPServer(("127.0.0.1", port), Handler).serve_forever()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("review", nargs="?", help="-: one review on standard input")
    parser.add_argument("--port", type=int, default=8080)
    asked = parser.parse_args()
    predictor = Predictor(asked.program)
    if asked.review is None:
        return serve(predictor, asked.port)
    print(json.dumps(answer(predictor, json.load(sys.stdin)), indent=2))


if __name__ == "__main__":
    main()
