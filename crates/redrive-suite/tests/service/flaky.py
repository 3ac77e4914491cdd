"""A flaky service that keeps a ledger, a JSON object a line: flaky.py LEDGER

A record's value says what it is answered with: a list of answers, one for each delivery, the last one repeats. An answer has
a status, and may have headers, a body, a wait before it, and a date to retry after in so many seconds. Prints its port.
"""

import json
import sys
import threading
import time
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

ledger = open(sys.argv[1], "a", encoding="utf-8")
lock = threading.Lock()


def now():
    return int(time.time() * 1000)


def note(**entry):
    with lock:
        ledger.write(json.dumps(entry) + "\n")
        ledger.flush()


class Service(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # One write for an answer, or the client waits for the second half of it.
    wbufsize = -1

    def do_POST(self):
        came = now()
        body = self.rfile.read(int(self.headers["content-length"]))
        headers = {name: value for name, value in self.headers.items() if not name.startswith("host")}
        note(came=came)
        attempts = int(headers["redrive-overall-attempts"])
        if self.path == "/wrong":
            answer = {"status": 404, "body": "no such page"}
        elif self.path == "/hang":
            answer = {"status": 200, "wait": 3600}
        else:
            answers = json.loads(body)["answers"]
            answer = answers[min(attempts, len(answers) - 1)]
        time.sleep(answer.get("wait", 0))
        text = answer.get("body", "").encode()
        note(came=came, at=now(), value=body.decode(), status=answer["status"], headers=headers)
        try:
            self.send_response(answer["status"])
            self.send_header("content-length", str(len(text)))
            for name, value in answer.get("headers", {}).items():
                self.send_header(name, value)
            if "date" in answer:
                self.send_header("retry-after", formatdate(time.time() + answer["date"], usegmt=True))
            self.end_headers()
            self.wfile.write(text)
        except OSError:
            # Nobody waits for it any more.
            self.close_connection = True

    def log_message(self, *_):
        pass


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256

    def handle_error(self, *_):
        # Clients are killed on purpose.
        pass


server = Server(("127.0.0.1", 0), Service)
print(server.server_address[1], flush=True)
server.serve_forever()
