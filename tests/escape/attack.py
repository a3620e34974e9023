"""What an attack is, and the few words that the scripts share.

A script says what it reached (`REACHED …`) or what held it (`refused …`), by harmless means: a descriptor opened and
closed, a call with an argument that fails after the permission check, a marker file. It runs as the tool, so with
exactly what the model can do. One that says neither has proved nothing, and counts as a failure.
"""

from __future__ import annotations

from dataclasses import dataclass

HARDENED, HARDENED_ROOT = "hardened", "hardened, workspace of root's"

PRELUDE = '''
import ctypes, errno, json, os, platform, signal, socket, struct, sys, time
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
FACTS = json.loads(os.environ.get("FACTS", "{}"))
# Numbers of system calls: x86-64, then the generic table that newer architectures share.
_NUMBERS = dict(
    add_key=(248, 217), keyctl=(250, 219), bpf=(321, 280), perf_event_open=(298, 241), userfaultfd=(323, 282),
    unshare=(272, 97), clone=(56, 220), setns=(308, 268), mount=(165, 40), umount2=(166, 39), chroot=(161, 51),
    pivot_root=(155, 41), name_to_handle_at=(303, 264), open_by_handle_at=(304, 265), finit_module=(313, 273),
    reboot=(169, 142), swapon=(167, 224), syslog=(103, 116), process_vm_readv=(310, 270), prlimit64=(302, 261),
    kcmp=(312, 272), move_pages=(279, 239), iopl=(172, 0), process_madvise=(440, 440), clone3=(435, 435),
    pidfd_getfd=(438, 438), io_uring_setup=(425, 425), capset=(126, 91), sethostname=(170, 161), fsopen=(430, 430),
    open_tree=(428, 428), quotactl=(179, 60), lookup_dcookie=(212, 18), vhangup=(153, 58), ptrace=(101, 117),
)
def number(name):
    return _NUMBERS[name][platform.machine() != "x86_64"]
def reached(what):
    print("REACHED", what, flush=True)
def refused(why):
    print("refused", why, flush=True)
def failed(error):
    return errno.errorcode.get(error.errno, str(error.errno))
def call(name, *arguments):
    """The system call itself; raises OSError."""
    passed = [ctypes.c_long(a) if isinstance(a, int) else a for a in arguments]
    result = libc.syscall(ctypes.c_long(number(name)), *passed)
    if result < 0:
        raise OSError(ctypes.get_errno(), name)
    return result
def attempt(what, function, *arguments, passed=()):
    """Says how it went. `passed` are errors that only come after the permission was granted."""
    try:
        value = function(*arguments)
    except OSError as error:
        if failed(error) in passed:
            reached(what + ": past the check, " + failed(error))
        else:
            refused(what + ": " + failed(error))
        return None
    except ValueError as error:  # how `resource` says that it is not allowed
        return refused(what + ": " + str(error))
    reached(what)
    return value
def touch(path, flags=os.O_RDONLY):
    """Opens and closes."""
    os.close(os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC))
def processes(uid):
    """Others' processes of that uid."""
    for name in os.listdir("/proc"):
        if name.isdecimal() and int(name) != os.getpid():
            try:
                if os.stat("/proc/" + name).st_uid == uid or name == "1":
                    yield int(name)
            except OSError:
                pass
def apart(function):
    """Runs it in a process of its own, whose state is nobody's business afterwards."""
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        try:
            function()
        finally:
            sys.stdout.flush()
            os._exit(0)
    os.waitpid(pid, 0)
'''


@dataclass(frozen=True)
class Attack:
    """One way out, and the control that closes it."""

    name: str
    control: str
    """What must hold it."""
    off: str
    """The stage in which that control is switched off."""
    script: str
    """Python after `PRELUDE`, run as the tool."""
    then: str = ""
    """A second call, after the first one is over, that looks for what the first left."""
    owners: tuple[int, ...] = (1000, 0)
    """Owners of the workspace with which it is tried."""
    slow: bool = False


@dataclass(frozen=True)
class Outcome:
    """What one run came to."""

    reached: bool
    told: bool
    """It said one or the other."""
    text: str

    @classmethod
    def of(cls, output: str) -> Outcome:
        lines = output.splitlines()
        found = [line for line in lines if line.startswith("REACHED")]
        held = [line for line in lines if line.startswith("refused")]
        shown = (found or held or lines[-1:] or ["(nothing)"])[-1]
        return cls(bool(found), bool(found or held), shown[:120])
