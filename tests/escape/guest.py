"""Attacks on what shares the container: the guest, its fork server, its files, the guards' folders."""

from __future__ import annotations

from tests.escape.attack import Attack

IDENTITY = "identity of its own (uid 64000)"

OTHERS = """
tried = 0
for pid in processes(64000):
    tried += 1
    one(pid)
tried or refused("no process of the guest's is to be seen")
"""

ATTACKS = [
    Attack(
        "the guest's environment",
        IDENTITY,
        "identity",
        'def one(pid): attempt(f"environ of {pid}", lambda: open(f"/proc/{pid}/environ", "rb").read())' + OTHERS,
    ),
    Attack(
        "the guest's memory",
        IDENTITY,
        "identity",
        'def one(pid): attempt(f"mem of {pid}", touch, f"/proc/{pid}/mem", os.O_RDWR)' + OTHERS,
    ),
    Attack(
        "the guest's memory map",
        IDENTITY,
        "identity",
        'def one(pid): attempt(f"maps of {pid}", lambda: open(f"/proc/{pid}/maps").read(1))' + OTHERS,
    ),
    Attack(
        "the guest's descriptors",
        IDENTITY,
        "identity",
        'def one(pid): attempt(f"descriptors of {pid}", os.listdir, f"/proc/{pid}/fd")' + OTHERS,
    ),
    Attack(
        "a frame on the wire",
        IDENTITY,
        "identity",
        """
for fd in range(64):
    path = f"/proc/1/fd/{fd}"
    try:
        if not os.readlink(path).startswith("pipe:"):
            continue
    except FileNotFoundError:
        continue
    except OSError as error:
        refused(f"{path}: {failed(error)}")
        break
    attempt(path, touch, path, os.O_WRONLY)
""",
    ),
    Attack(
        "ptrace",
        IDENTITY,
        "identity",
        """
def seize(pid):
    call("ptrace", 0x4206, pid, 0, 0)
    os.kill(pid, 0)
def one(pid):
    if pid != os.getppid():
        apart(lambda: attempt(f"ptrace of {pid}", seize, pid))
"""
        + OTHERS,
    ),
    Attack(
        "signals to the guest",
        IDENTITY,
        "identity",
        'def one(pid): attempt(f"signal 0 to {pid}", os.kill, pid, 0)' + OTHERS,
    ),
    Attack(
        "signals by a descriptor",
        IDENTITY,
        "identity",
        """
def one(pid):
    fd = os.pidfd_open(pid)
    attempt(f"signal 0 to {pid}", signal.pidfd_send_signal, fd, 0)
    os.close(fd)
"""
        + OTHERS,
    ),
    Attack(
        "take a descriptor of the guest's",
        IDENTITY + ", seccomp profile",
        "all",
        """
def one(pid):
    fd = os.pidfd_open(pid)
    attempt(f"descriptor 2 of {pid}", lambda: os.close(call("pidfd_getfd", fd, 2, 0)))
    os.close(fd)
"""
        + OTHERS,
    ),
    Attack(
        "read the guest's memory by call",
        IDENTITY,
        "identity",
        """
def one(pid):
    there = ctypes.create_string_buffer(8)
    local = struct.pack("QQ", ctypes.addressof(there), 8)
    far = struct.pack("QQ", 0x400000, 8)
    attempt(f"memory of {pid}", call, "process_vm_readv", pid, local, 1, far, 1, 0, passed=("EFAULT",))
"""
        + OTHERS,
    ),
    Attack(
        "the guest's view of the files",
        IDENTITY,
        "identity",
        'def one(pid): attempt(f"root of {pid}", os.listdir, f"/proc/{pid}/root")' + OTHERS,
    ),
    Attack(
        "make the guest the memory killer's choice",
        IDENTITY,
        "identity",
        'def one(pid): attempt(f"score of {pid}", touch, f"/proc/{pid}/oom_score_adj", os.O_WRONLY)' + OTHERS,
    ),
    Attack(
        "the guest's limits",
        IDENTITY,
        "identity",
        'def one(pid): attempt(f"limits of {pid}", call, "prlimit64", pid, 7, 0, ctypes.create_string_buffer(16))'
        + OTHERS,
    ),
    Attack(
        "the guest's priority",
        IDENTITY,
        "identity",
        'def one(pid): attempt(f"priority of {pid}", os.setpriority, 0, pid, os.getpriority(0, pid))' + OTHERS,
        owners=(1000,),
    ),
    Attack(
        "the guest's processors",
        IDENTITY,
        "identity",
        'def one(pid): attempt(f"processors of {pid}", os.sched_setaffinity, pid, os.sched_getaffinity(pid))' + OTHERS,
        owners=(1000,),
    ),
    Attack(
        "the program",
        "read-only root, owner root",
        "all",
        """
attempt("a file beside the program", lambda: os.close(os.open("/opt/sbx/escape", os.O_CREAT | os.O_WRONLY)))
attempt("another program in its place", os.rename, "/opt/sbx/build", "/opt/sbx/build-moved")
""",
    ),
    Attack(
        "programs that everyone starts",
        "read-only root",
        "all",
        """
for path in ("/usr/local/bin/sh", "/usr/bin/escape", "/etc/ld.so.preload", "/etc/profile.d/escape.sh", "/root/.bashrc"):
    attempt(path, lambda: os.close(os.open(path, os.O_CREAT | os.O_WRONLY)))
""",
    ),
    Attack(
        "the configuration by writing",
        "guest's own tmpfs, 0755",
        "identity",
        """
attempt("a guard's file", touch, "/run/sbx/config/guard.py", os.O_WRONLY)
attempt("a file beside it", lambda: os.close(os.open("/run/sbx/config/json.py", os.O_CREAT | os.O_WRONLY)))
""",
    ),
    Attack(
        "the configuration by renaming",
        "guest's own tmpfs, 0755",
        "identity",
        """
def swap(path):
    os.rename(path, path + "-moved")
    os.rename(path + "-moved", path)
for path in ("/run/sbx/config/guard.py", "/run/sbx/config", "/run/sbx/empty", "/run/sbx"):
    attempt(path, swap, path)
""",
    ),
    Attack(
        "the configuration by a link",
        "guest's own tmpfs, 0755",
        "identity",
        """
def link(path):
    os.symlink("/tmp", path)
    os.unlink(path)
for path in ("/run/sbx/link", "/run/sbx/config/link", "/run/link"):
    attempt(path, link, path)
""",
    ),
    Attack(
        "the configuration by a hard link",
        "guest's own tmpfs, 0755",
        "identity",
        """
def link():
    os.link("/run/sbx/config/guard.py", "/run/sbx/hard")
    os.unlink("/run/sbx/hard")
attempt("a second name", link)
""",
    ),
    Attack(
        "the configuration by a race",
        "guest's own tmpfs, 0755",
        "identity",
        """
end, won = time.monotonic() + 0.3, 0
while time.monotonic() < end and not won:
    try:
        os.rename("/run/sbx/config", "/run/sbx/raced")
        os.rename("/run/sbx/raced", "/run/sbx/config")
        won += 1
    except OSError:
        pass
reached("won once") if won else refused("lost every time in 0.3 s")
""",
    ),
    Attack(
        "names of users",
        "guest's own tmpfs",
        "identity",
        'attempt("the list of users", touch, "/var/lib/extrausers/passwd", os.O_WRONLY)',
    ),
    Attack(
        "kept outputs",
        "sticky /tmp, guest's own folder",
        "identity",
        """
def plant():
    os.symlink("/etc/passwd", "/tmp/sbx-output/0001-x.stdout")
    os.unlink("/tmp/sbx-output/0001-x.stdout")
attempt("a link among the outputs", plant)
def move():
    os.rename("/tmp/sbx-output", "/tmp/moved")
    os.rename("/tmp/moved", "/tmp/sbx-output")
attempt("the whole folder", move)
""",
    ),
    Attack(
        "the guards' folder",
        "identity of its own (uid 64001)",
        "identity",
        """
attempt("what guards keep", os.listdir, "/tmp/sbx-hook")
def move():
    os.rename("/tmp/sbx-hook", "/tmp/moved-hook")
    os.rename("/tmp/moved-hook", "/tmp/sbx-hook")
attempt("the folder itself", move)
""",
    ),
    Attack(
        "the guards' home",
        "empty, guest's own, 0555",
        "identity",
        'attempt("a file there", lambda: os.close(os.open("/run/sbx/empty/.guardrc", os.O_CREAT | os.O_WRONLY)))\n'
        'try: os.unlink("/run/sbx/empty/.guardrc")\nexcept OSError: pass',
    ),
    Attack(
        "another /dev/stdin",
        "guest owns /dev",
        "identity",
        """
def move():
    os.rename("/dev/stdin", "/dev/stdin-moved")
    os.rename("/dev/stdin-moved", "/dev/stdin")
attempt("/dev/stdin", move)
attempt("a file in /dev", lambda: (os.symlink("/tmp", "/dev/escape"), os.unlink("/dev/escape")))
""",
    ),
    Attack(
        "the host's secrets",
        "nothing of the host's environment enters",
        "secrets",
        """
found, secret = [], FACTS["secret"].encode()
for pid in filter(str.isdecimal, os.listdir("/proc")):
    for name in ("environ", "cmdline"):
        try:
            if secret in open(f"/proc/{pid}/{name}", "rb").read() and int(pid) != os.getpid():
                found.append(f"{name} of {pid}")
        except OSError:
            pass
if secret in "\\n".join(f"{k}={v}" for k, v in os.environ.items() if k != "FACTS").encode():
    found.append("the tool's environment")
reached(found[0]) if found else refused("not in any environment or command line")
""",
    ),
    Attack(
        "the engine's socket",
        "nothing but the workspace is mounted",
        "mounts",
        """
for path in ("/var/run/docker.sock", "/run/docker.sock", "/run/containerd/containerd.sock", "/run/podman/podman.sock"):
    def connect():
        with socket.socket(socket.AF_UNIX) as s:
            s.connect(path)
    attempt(path, connect)
""",
    ),
    Attack(
        "the host's files beside the workspace",
        "nothing but the workspace is mounted",
        "mounts",
        """
link = FACTS["workspace"] + "/out"
for path in (FACTS["outside"], FACTS["workspace"] + "/../outside/secret.txt"):
    attempt(path, lambda: open(path).read())
os.path.islink(link) or os.symlink(FACTS["outside"], link)
attempt("through a link", lambda: open(link).read())
os.unlink(link)
""",
    ),
]

SPAWN = """
import subprocess
def leave(code):
    subprocess.Popen([sys.executable, "-c", code, "sbx-left"], start_new_session=%s, stdout=subprocess.DEVNULL,
                     stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
"""
FIND = """
def find():
    for pid in filter(str.isdecimal, os.listdir("/proc")):
        try:
            if b"sbx-left" in open(f"/proc/{pid}/cmdline", "rb").read() and int(pid) != os.getpid():
                yield int(pid)
        except OSError:
            pass
left, end = set(), time.monotonic() + 0.3
while time.monotonic() < end and not left:
    left.update(find())
for pid in left:
    try:
        os.kill(pid, signal.SIGKILL)
    except OSError:
        pass
reached(f"{len(left)} processes outlived their call") if left else refused("nothing outlived its call")
"""
TREE = "supervisor ends the call's whole tree"
NAP = "import time; time.sleep(30)"

ENDINGS = [
    Attack(
        "a child in the background",
        TREE,
        "ending",
        SPAWN % "False" + f'leave({NAP!r})\nrefused("left one")',
        FIND,
    ),
    Attack(
        "a session of its own",
        TREE,
        "ending",
        SPAWN % "True" + f'leave({NAP!r})\nrefused("left one")',
        FIND,
    ),
    Attack(
        "a daemon that forked twice",
        TREE,
        "ending",
        SPAWN % "True"
        + """
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        leave("import time; time.sleep(30)")
    os._exit(0)
os.wait()
time.sleep(0.1)
refused("left one")
""",
        FIND,
    ),
    Attack(
        "deaf to signals",
        TREE,
        "ending",
        SPAWN % "True"
        + """
leave('''
import signal, time
for number in set(signal.valid_signals()) - {signal.SIGKILL, signal.SIGSTOP}:
    signal.signal(number, signal.SIG_IGN)
time.sleep(30)
''')
time.sleep(0.1)
refused("left one")
""",
        FIND,
    ),
    Attack(
        "stopped, with a timer that wakes it",
        TREE,
        "ending",
        SPAWN % "True"
        + """
leave('''
import os, signal, time
pid = os.getpid()
if os.fork() == 0:
    while True:
        time.sleep(0.01)
        os.kill(pid, signal.SIGCONT)
os.kill(pid, signal.SIGSTOP)
time.sleep(30)
''')
time.sleep(0.1)
refused("left two")
""",
        FIND,
    ),
    Attack(
        "always another process",
        TREE,
        "ending",
        SPAWN % "True"
        + """
leave('''
import os, time
for _ in range(5000):
    if os.fork():
        os._exit(0)
    time.sleep(0.001)
''')
time.sleep(0.1)
refused("left a chain")
""",
        FIND,
    ),
]
