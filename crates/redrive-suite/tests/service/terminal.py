"""Runs the demo in a terminal: python3 terminal.py REDRIVE.

Prints everything that it wrote, and in the end whether the terminal is as it was before. Ends as the demo did.
"""

import fcntl
import os
import pty
import struct
import sys
import termios
import time


def resize(terminal, columns, rows):
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


ours, theirs = pty.openpty()
resize(ours, 80, 24)
before = termios.tcgetattr(theirs)
child = os.fork()
if child == 0:
    os.setsid()
    for stream in range(3):
        os.dup2(theirs, stream)
    os.environ["TERM"] = "xterm-256color"
    os.environ.pop("NO_COLOR", None)
    os.execv(sys.argv[1], [sys.argv[1], "demo", "--records", "2000"])

written, steps, ended = b"", [(160, 45), (60, 16), (20, 5), (80, 24)], None
os.set_blocking(ours, False)
limit = time.monotonic() + 60
while time.monotonic() < limit:
    try:
        written += os.read(ours, 65536)
    except OSError:
        # What it wrote last may have come after the last look.
        if ended is not None:
            break
        time.sleep(0.02)
        gone, status = os.waitpid(child, os.WNOHANG)
        ended = status if gone else None
        continue
    # Whenever a dot has moved, something is done to the terminal.
    if "●".encode() in written and steps is not None:
        if steps:
            resize(ours, *steps.pop(0))
        else:
            os.write(ours, b"\x03")
            steps = None
else:
    os.kill(child, 9)
    sys.exit("the demo does not end: " + written.decode(errors="replace"))
after = termios.tcgetattr(theirs)
sys.stdout.buffer.write(written)
print("as before" if before == after else f"not as before: {before} {after}")
sys.exit(os.waitstatus_to_exitcode(ended))
