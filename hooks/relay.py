#!/usr/bin/env python3
"""Any event, `where: host`: passes it on to a Unix socket or a URL, in order, without holding up the turn.

Usage: `python3 "$SBX_HOOKS_DIR/relay.py" unix:/run/me/events.sock` (one JSON line an event) or
`… https://example.org/events` (one POST an event). `--spool FOLDER` names where events wait; the default lies in the
user's state folder.

An event is appended to a spool file and the hook is done. Whoever finds no sender at work becomes one, in a process of
its own that sends what waits, oldest first, until nothing is left. An event that cannot be delivered in `TRIES` tries
stays first in the spool and is tried again with the next one, so the order holds; past `LARGEST_SPOOL` new events are
dropped, and counted in the next that is sent as `relayDropped`.
"""

import fcntl
import hashlib
import json
import os
import socket
import sys
import tempfile
import time
import urllib.request

from hook_io import HookError, serve

TRIES = 5
PAUSE = 0.5
"""Seconds before the second try; each further pause is twice as long."""
REPLY = 5.0
"""Seconds that one delivery may take."""
LARGEST_SPOOL = 16 * 1024 * 1024
"""Bytes that may wait."""


class Spool:
    """A file of waiting events, one JSON line each, and two locks: on the file, and for the one who sends."""

    def __init__(self, folder, target):
        name = hashlib.sha256(target.encode()).hexdigest()[:16]
        os.makedirs(folder, mode=0o700, exist_ok=True)
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        self.file = os.open(os.path.join(folder, name + ".jsonl"), flags, 0o600)
        self.sender = os.open(os.path.join(folder, name + ".lock"), flags, 0o600)
        self.dropped = os.path.join(folder, name + ".dropped")

    def append(self, line):
        """Adds an event; returns whether the caller is to send now, and so holds the sender's lock."""
        with self:
            size = os.fstat(self.file).st_size
            if size + len(line) > LARGEST_SPOOL:
                self._count_dropped(1)
            else:
                os.pwrite(self.file, line, size)
            try:
                fcntl.flock(self.sender, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
            return True

    def first(self):
        """The oldest event, or None: then the sender's lock is given back in the same breath, so that an event which
        is appended now finds no sender and starts one."""
        with self:
            data = os.pread(self.file, LARGEST_SPOOL, 0)
            if not data:
                fcntl.flock(self.sender, fcntl.LOCK_UN)
                return None
            return data[: data.find(b"\n") + 1] or data

    def remove(self, line):
        with self:
            rest = os.pread(self.file, LARGEST_SPOOL, len(line))
            os.ftruncate(self.file, 0)
            os.pwrite(self.file, rest, 0)

    def take_dropped(self):
        with self:
            try:
                with open(self.dropped, encoding="ascii") as file:
                    count = int(file.read(20))
                os.unlink(self.dropped)
            except (OSError, ValueError):
                return 0
            return count

    def _count_dropped(self, more):
        try:
            with open(self.dropped, encoding="ascii") as file:
                more += int(file.read(20))
        except (OSError, ValueError):
            pass
        with open(self.dropped, "w", encoding="ascii") as file:
            file.write(str(more))

    def __enter__(self):
        fcntl.flock(self.file, fcntl.LOCK_EX)

    def __exit__(self, *_):
        fcntl.flock(self.file, fcntl.LOCK_UN)


def send(target, line):
    """Delivers one line.

    Raises:
        OSError: it could not be delivered (urllib's errors are such).
    """
    if target.startswith("unix:"):
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(REPLY)
            connection.connect(target.removeprefix("unix:"))
            connection.sendall(line)
        return
    request = urllib.request.Request(target, data=line, headers={"Content-Type": "application/json"}, method="POST")
    with urllib.request.urlopen(request, timeout=REPLY):
        pass


def drain(spool, target):
    while (line := spool.first()) is not None:
        dropped = spool.take_dropped()
        sent = line
        if dropped:
            sent = json.dumps({**json.loads(line), "relayDropped": dropped}).encode() + b"\n"
        pause = PAUSE
        for attempt in range(TRIES):
            try:
                send(target, sent)
                break
            except OSError:
                if attempt == TRIES - 1:
                    return  # stays first; the lock ends with this process
                time.sleep(pause)
                pause *= 2
        spool.remove(line)


def send_apart(spool, target):
    """Sends what waits in a process of its own, that holds neither the hook's pipes nor its process group."""
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        # The child has its own hold on the lock's file description; ours must not outlive it.
        return
    try:
        os.setsid()
        if os.fork():
            os._exit(0)
        null = os.open(os.devnull, os.O_RDWR)
        for fd in (0, 1, 2):
            os.dup2(null, fd)
        drain(spool, target)
    finally:
        os._exit(0)


def spool_folder(environ):
    if state := environ.get("XDG_STATE_HOME"):
        return os.path.join(state, "sbx", "relay")
    if home := environ.get("HOME"):
        return os.path.join(home, ".local", "state", "sbx", "relay")
    return os.path.join(tempfile.gettempdir(), f"sbx-relay-{os.getuid()}")


def main():
    arguments = sys.argv[1:]
    folder = spool_folder(os.environ)
    if arguments[:1] == ["--spool"] and len(arguments) > 1:
        folder, arguments = arguments[1], arguments[2:]
    if len(arguments) != 1 or not arguments[0].startswith(("unix:/", "http://", "https://")):
        sys.exit("usage: relay.py [--spool FOLDER] unix:/PATH | http(s)://URL")
    target = arguments[0]

    def handle(event):
        line = json.dumps(event).encode() + b"\n"
        if len(line) > LARGEST_SPOOL:
            raise HookError("the event is too large")
        # Opened for each event: a kept process must not hold the sender's lock after its sender has ended.
        spool = Spool(folder, target)
        try:
            if spool.append(line):
                send_apart(spool, target)
        finally:
            os.close(spool.file)
            os.close(spool.sender)

    serve("relay", handle)


if __name__ == "__main__":
    main()
