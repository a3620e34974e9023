"""A few numbers that hooks keep between the events of a session, in a file of their own identity.

Guards may write nothing but their own temporary folder, and each event may be a new process, so a file there it is.
"""

import json
import os
import re
import tempfile


class State:
    """Read with `load`, written with `save`; what is missing or broken reads as empty."""

    def __init__(self, hook, event):
        session = event.get("session")
        safe = re.sub(r"[^A-Za-z0-9._-]", "_", session)[:80] if isinstance(session, str) else "session"
        self.path = os.path.join(tempfile.gettempdir(), f".sbx-{hook}-{os.getuid()}-{safe}")

    def load(self):
        try:
            fd = os.open(self.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return {}
        with open(fd, "rb") as file:
            if os.fstat(file.fileno()).st_uid != os.getuid():
                return {}  # somebody else's: it says what they want
            try:
                value = json.loads(file.read(65536))
            except ValueError:
                return {}
        return value if isinstance(value, dict) else {}

    def save(self, value):
        """Writes the whole state at once.

        Raises:
            OSError: it cannot be written.
        """
        fd, name = tempfile.mkstemp(prefix=".sbx-state-")
        try:
            with open(fd, "w") as file:
                json.dump(value, file)
            os.replace(name, self.path)
        except OSError:
            os.unlink(name)
            raise

    def forget(self):
        try:
            os.unlink(self.path)
        except FileNotFoundError:
            pass
