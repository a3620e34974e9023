"""Attacks by eating: each must end at the sandbox's own limit, and the session goes on."""

from __future__ import annotations

from tests.escape.attack import Attack

FILL = """
def fill(folder, most):
    path, written, piece = folder + "/fill", 0, bytes(1 << 20)
    try:
        with open(path, "wb", buffering=0) as file:
            while written < most:
                written += file.write(piece)
        reached(f"{written >> 20} MiB in {folder}")
    except OSError as error:
        refused(f"{folder}: {failed(error)} after {written >> 20} MiB")
    finally:
        if os.path.exists(path):
            os.unlink(path)
def inodes(folder, most):
    made, below = 0, folder + "/many"
    try:
        os.mkdir(below)
        for made in range(most):
            os.close(os.open(f"{below}/{made}", os.O_CREAT | os.O_WRONLY))
        reached(f"{most} files in {folder}")
    except OSError as error:
        refused(f"{folder}: {failed(error)} after {made} files")
    finally:
        import shutil
        shutil.rmtree(below, ignore_errors=True)
"""

ATTACKS = [
    Attack(
        "a fork bomb",
        "limit of processes",
        "limits",
        """
children = []
try:
    for _ in range(300):
        pid = os.fork()
        if pid == 0:
            signal.pause()
        children.append(pid)
    reached("300 processes")
except OSError as error:
    refused(f"{failed(error)} after {len(children)} processes")
for pid in children:
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
""",
    ),
    Attack(
        "threads without end",
        "limit of processes",
        "limits",
        """
import threading
stop = threading.Event()
made = 0
try:
    for made in range(300):
        threading.Thread(target=stop.wait, daemon=True).start()
    reached("300 threads")
except RuntimeError:
    refused(f"no more after {made} threads")
stop.set()
""",
    ),
    Attack(
        "all of the memory",
        "limit of memory, no swap",
        "limits",
        """
sys.stdout.flush()
pid = os.fork()
if pid == 0:
    held = [bytearray(1 << 24) for _ in range(40)]
    for piece in held:
        piece[:: 4096] = b"x" * len(piece[:: 4096])
    os._exit(0)
_, status = os.waitpid(pid, 0)
code = os.waitstatus_to_exitcode(status)
reached("640 MiB") if code == 0 else refused(f"ended by {code}")
""",
    ),
    Attack("a full /tmp", "size of the tmpfs", "limits", FILL + 'fill("/tmp", 100 << 20)'),
    Attack("a full /var/tmp", "size of the tmpfs", "limits", FILL + 'fill("/var/tmp", 100 << 20)'),
    Attack(
        "a full /dev/shm",
        "size of the tmpfs",
        "large /dev/shm",
        FILL + 'fill("/dev/shm", 100 << 20)',
    ),
    Attack(
        "shared memory without end",
        "size of the tmpfs, limit of memory",
        "limits",
        FILL
        + """
sys.stdout.flush()
pid = os.fork()
if pid == 0:
    import mmap
    held = []
    for _ in range(3):
        fd = os.memfd_create("many")
        os.ftruncate(fd, 200 << 20)
        held.append(mmap.mmap(fd, 200 << 20))
        for at in range(0, 200 << 20, 4096):
            held[-1][at] = 1
    os._exit(0)
_, status = os.waitpid(pid, 0)
code = os.waitstatus_to_exitcode(status)
reached("600 MiB in files without a name") if code == 0 else refused(f"ended by {code}")
""",
    ),
    Attack("files without end in /tmp", "inodes of the tmpfs", "limits", FILL + 'inodes("/tmp", 30000)'),
    Attack("files without end in /var/tmp", "inodes of the tmpfs", "limits", FILL + 'inodes("/var/tmp", 30000)'),
    Attack(
        "descriptors without end",
        "limit of open files",
        "limits",
        """
import resource
held = []
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
try:
    for _ in range(3000):
        held.append(os.open("/dev/null", os.O_RDONLY))
    reached("3000 descriptors")
except OSError as error:
    refused(f"{failed(error)} after {len(held)}")
""",
    ),
    Attack(
        "raise one's own limits",
        "hard limits",
        "all",
        """
import resource
def more():
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard + 1, hard + 1))
apart(lambda: attempt("one more open file", more))
""",
    ),
]
