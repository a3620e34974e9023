"""Around a startup command: tells how it ended, and stays for what it left running.

A tool call's leftovers are ended with the call. A startup command is there to leave something (`nohup server &`), so
it gets this process between itself and the supervisor: a child subreaper that lives until the last of them has gone.
Called after the drop, as the command's own identity, in place of a program; ended with the session like any other.
"""

from __future__ import annotations

import fcntl
import os
import signal

from runner.guest.spawn import command, privileges


def main(argv: list[str]) -> int:
    """Runs `argv`. Descriptor 0 is a pipe that takes its end: an exit code, `signal N`, or `error TEXT`."""
    status = fcntl.fcntl(0, fcntl.F_DUPFD_CLOEXEC, 10)
    null = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    os.dup2(null, 0)
    privileges.become_subreaper()
    try:
        pid = os.posix_spawnp(argv[0], argv, dict(os.environ), setsid=True, setsigdef=[signal.SIGPIPE])
    except OSError as error:
        os.write(status, f"error {command.reason(error.errno or 0)}".encode())
        return 127
    # What the command left would otherwise hold these two open in a process that needs neither.
    os.dup2(null, 1)
    os.dup2(null, 2)
    while True:
        try:
            ended, how = os.waitpid(-1, 0)
        except ChildProcessError:
            return 0
        if ended == pid:
            code = os.waitstatus_to_exitcode(how)
            os.write(status, (f"signal {-code}" if code < 0 else str(code)).encode())
            os.close(status)
