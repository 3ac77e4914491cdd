"""A service that takes records from Redrive, with Python's standard library alone.

    SECRET=s3cr3t python3 examples/http/server.py 8080

docs/http.md tells all about the protocol.
"""

import hashlib
import hmac
import json
import os
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote_to_bytes

SECRET = os.environ.get("SECRET", "").encode()
# What was done already. A service of yours keeps this in its database, in the transaction that does the work.
done = set()


def is_signed(header, body, now, tolerance=300):
    """Whether a request comes from somebody who knows the secret, and is not an old one sent again."""
    parts = dict(part.split("=", 1) for part in header.split(",") if "=" in part)
    seconds = parts.get("t", "")
    if not seconds.isdigit() or abs(now - int(seconds)) > tolerance:
        return False
    expected = hmac.new(SECRET, seconds.encode() + b"." + body, hashlib.sha256).hexdigest()
    return hmac.compare_digest(expected.encode(), parts.get("v1", "").encode())


def own_headers(message):
    """The record's own headers: names to lists of values, which are bytes, or None for null."""
    headers = {}
    for name, value in message.items():
        name = name.lower()
        if name.startswith("redrive-header-"):
            name = unquote_to_bytes(name.removeprefix("redrive-header-")).decode(errors="replace")
            headers.setdefault(name, []).append(unquote_to_bytes(value))
        elif name == "redrive-null-header":
            headers.setdefault(unquote_to_bytes(value).decode(errors="replace"), []).append(None)
    return headers


class Service(BaseHTTPRequestHandler):
    # Connections are kept, and an answer is sent in one piece.
    protocol_version = "HTTP/1.1"
    wbufsize = -1

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        if SECRET and not is_signed(self.headers.get("redrive-signature", ""), body, time.time()):
            return self.answer(401, "not signed")
        value = None if self.headers.get("redrive-null") == "true" else body
        key = self.headers.get("redrive-key")
        record = {
            "topic": self.headers["redrive-origin-topic"],
            "key": None if key is None else unquote_to_bytes(key).decode(errors="replace"),
            "value": None if value is None else value.decode(errors="replace"),
            "delivery": int(self.headers["redrive-delivery"]),
            "is_last": self.headers.get("redrive-last-attempt") == "true",
            "headers": {
                name: [None if it is None else it.decode(errors="replace") for it in values]
                for name, values in own_headers(self.headers).items()
            },
        }
        # The same record may come again: after a failure, or because an answer got lost.
        if self.headers["idempotency-key"] in done:
            return self.answer(200, "done before")
        print(json.dumps(record), flush=True)
        self.handle_record(record)

    def handle_record(self, record):
        """Here is your code: answer 2xx when it is done, else say what went wrong."""
        try:
            order = json.loads(record["value"]) if record["value"] is not None else {}
        except ValueError:
            # Not retryable: it goes to the dead-letter topic, by the status alone.
            return self.answer(400, "not JSON")
        if order.get("busy") and record["delivery"] <= order["busy"]:
            return self.answer(503, "busy", {"retry-after": "1"})
        if order.get("test"):
            # Whatever the policies say: nobody wants it.
            return self.answer(200, "a test", {"redrive-action": "drop"})
        done.add(self.headers["idempotency-key"])
        self.answer(200, "thank you")

    def answer(self, status, text, headers=None):
        body = text.encode()
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1]) if len(sys.argv) > 1 else 8080), Service)
    print(f"listening on {server.server_address[1]}", file=sys.stderr, flush=True)
    server.serve_forever()
