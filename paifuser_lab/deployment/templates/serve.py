"""Serve the model: POST an image, .npy or .npz to / (its Content-Type says which); GET /healthz."""

import argparse
import io
import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from run import SPEC, answer

LIMIT_BYTES = 64 << 20
SUFFIXES = {"application/x-npy": ".npy", "application/x-npz": ".npz"}


def refusal(length):  # '' or what is wrong with a body of this Content-Length, before it is read
    if length.isdigit() and 0 < int(length) <= LIMIT_BYTES:
        return ""
    return f"give a body of 1 to {LIMIT_BYTES} bytes"


def replied(body, kind):  # the status and content of the reply to a body of this Content-Type
    try:
        outputs = answer(io.BytesIO(body), SUFFIXES.get(kind, ""))
    except (Exception, SystemExit) as error:  # each library raises its own for a bad body
        return 400, {"error": f"{type(error).__name__}: {error}"[:500]}
    values = {name: array.astype("float64").tolist() for name, array in outputs.items()}
    return 200, {"outputs": values, "labels": SPEC["labels"]}


class Handler(BaseHTTPRequestHandler):
    timeout = 30

    def do_GET(self):
        self.reply(200 if self.path == "/healthz" else 404, {"ok": self.path == "/healthz"})

    def do_POST(self):
        length = self.headers.get("Content-Length", "")
        if error := refusal(length):
            self.close_connection = True  # its body is not read
            return self.reply(413, {"error": error})
        body = self.rfile.read(int(length))
        return self.reply(*replied(body, self.headers.get("Content-Type", "")))

    def reply(self, status, content):
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--host", default="127.0.0.1", help="0.0.0.0 inside a container")
    parser.add_argument("--port", type=int, default=8080)
    given = parser.parse_args()
    server = ThreadingHTTPServer((given.host, given.port), Handler)
    print(f"http://{server.server_address[0]}:{server.server_address[1]}", flush=True)
    server.serve_forever()
