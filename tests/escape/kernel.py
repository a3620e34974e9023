"""Attacks on the kernel's doors: system calls, devices, /proc, /sys, control groups, mounts, privileges."""

from __future__ import annotations

from tests.escape.attack import Attack

SECCOMP = "seccomp profile"
CAPABILITIES = "no capability, seccomp profile"

ATTACKS = [
    Attack(
        "io_uring",
        SECCOMP,
        "seccomp",
        'attempt("a ring", lambda: os.close(call("io_uring_setup", 4, ctypes.create_string_buffer(120))))',
    ),
    Attack(
        "session keyring",
        SECCOMP,
        "seccomp",
        'attempt("the session\'s keyring", call, "keyctl", 0, -3, 0)',
    ),
    Attack(
        "a key of one's own",
        SECCOMP,
        "seccomp",
        'attempt("a key", call, "add_key", b"user", b"sbx-escape", b"x", 1, -2)',
    ),
    Attack(
        "perf_event_open",
        SECCOMP,
        "seccomp",
        """
attribute = struct.pack("IIQQQQQ", 1, 64, 0, 0, 0, 0, 1 << 5 | 1 << 6).ljust(64, b"\\0")  # kernel, hypervisor excluded
attempt("a counter", lambda: os.close(call("perf_event_open", attribute, 0, -1, -1, 8)))
""",
    ),
    Attack("userfaultfd", SECCOMP, "seccomp", 'attempt("a fault handler", lambda: os.close(call("userfaultfd", 1)))'),
    Attack(
        "user namespace by unshare",
        SECCOMP,
        "seccomp",
        'apart(lambda: attempt("a user namespace", call, "unshare", 0x10000000))',
    ),
    Attack(
        "user namespace by clone",
        SECCOMP,
        "seccomp",
        """
def clone():
    pid = call("clone", 0x10000000 | signal.SIGCHLD, 0, 0, 0, 0)
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
attempt("a user namespace", clone)
""",
    ),
    Attack(
        "user namespace by clone3",
        SECCOMP,
        "seccomp",
        """
def clone3():
    pid = call("clone3", struct.pack("QQQQQQQQ", 0x10000000, 0, 0, 0, signal.SIGCHLD, 0, 0, 0), 64)
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
attempt("a user namespace", clone3)
""",
    ),
    Attack(
        "mount inside a user namespace",
        SECCOMP,
        "seccomp",
        """
def inside():
    try:
        call("unshare", 0x10000000 | 0x00020000)
        open("/proc/self/setgroups", "w").write("deny")
    except OSError as error:
        return refused("no namespace: " + failed(error))
    attempt("a mount of one's own", call, "mount", b"none", b"/mnt", b"tmpfs", 0, 0)
apart(inside)
""",
    ),
    Attack(
        "vsock to the hypervisor", SECCOMP, "seccomp", 'attempt("a vsock socket", lambda: socket.socket(40, 1).close())'
    ),
    Attack(
        "kernel crypto socket", SECCOMP, "seccomp", 'attempt("an AF_ALG socket", lambda: socket.socket(38, 5).close())'
    ),
    Attack(
        "the other architecture's calls",
        SECCOMP,
        "seccomp",
        """
import mmap
if platform.machine() != "x86_64":
    refused("there is no other one")
else:
    # push rbx; mov eax, edi; mov ebx, esi; mov ecx, edx; xor edx, edx; int 0x80; pop rbx; ret
    code = bytes.fromhex("5389f889f389d131d2cd805bc3")
    page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    page.write(code)
    entry = ctypes.addressof(ctypes.c_char.from_buffer(page))
    result = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_int)(entry)(359, 40, 1)
    reached("a vsock socket") if result >= 0 else refused("socket: " + errno.errorcode[-result])
""",
    ),
    Attack(
        "kcmp and process_madvise",
        SECCOMP,
        "seccomp",
        'attempt("kcmp", call, "kcmp", os.getpid(), os.getpid(), 0, 0, 0)',
    ),
    Attack(
        "bpf map",
        CAPABILITIES,
        "all",
        'attempt("a map", lambda: os.close(call("bpf", 0, struct.pack("IIII", 2, 4, 4, 1).ljust(72, b"\\0"), 72)))',
    ),
    Attack(
        "network namespace", CAPABILITIES, "all", 'apart(lambda: attempt("a network", call, "unshare", 0x40000000))'
    ),
    Attack(
        "mount namespace", CAPABILITIES, "all", 'apart(lambda: attempt("a mount view", call, "unshare", 0x00020000))'
    ),
    Attack(
        "PID 1's namespaces by setns",
        CAPABILITIES,
        "all",
        """
def enter():
    fd = os.open("/proc/1/ns/mnt", os.O_RDONLY)
    call("setns", fd, 0)
apart(lambda: attempt("PID 1's mounts", enter))
""",
    ),
    Attack(
        "mount a file system",
        CAPABILITIES,
        "all",
        """
def mount():
    call("mount", b"none", b"/mnt", b"tmpfs", 0, 0)
    call("umount2", b"/mnt", 2)
attempt("a mount", mount)
""",
    ),
    Attack(
        "bind something over the program",
        CAPABILITIES,
        "all",
        """
def bind():
    call("mount", b"/tmp", b"/opt/sbx/hooks", b"none", 4096, 0)
    call("umount2", b"/opt/sbx/hooks", 2)
attempt("/opt/sbx/hooks", bind)
""",
    ),
    Attack(
        "the newer mount calls",
        CAPABILITIES,
        "all",
        'attempt("a file system context", lambda: os.close(call("fsopen", b"tmpfs", 0)))',
    ),
    Attack(
        "detach a mount of the sandbox's",
        CAPABILITIES,
        "all",
        'attempt("/dev/mqueue", call, "umount2", b"/dev/mqueue", 2)',
        owners=(1000,),
    ),
    Attack(
        "make a read-only mount writable",
        CAPABILITIES,
        "all",
        """
def remount():
    call("mount", b"/tmp", b"/mnt", b"none", 4096, 0)
    call("mount", b"none", b"/mnt", b"none", 4096 | 32 | 1, 0)
    call("mount", b"none", b"/mnt", b"none", 4096 | 32, 0)
    call("umount2", b"/mnt", 2)
attempt("a remount", remount)
""",
    ),
    Attack("chroot", CAPABILITIES, "all", 'apart(lambda: attempt("another root", call, "chroot", b"/tmp"))'),
    Attack(
        "pivot_root",
        CAPABILITIES,
        "all",
        'apart(lambda: attempt("the call", call, "pivot_root", b"/nonexistent", b"/", passed=("ENOENT",)))',
    ),
    Attack(
        "a device node for the host's disk",
        CAPABILITIES,
        "all",
        """
numbers = [open("/sys/dev/block/" + n + "/dev").read().strip() for n in os.listdir("/sys/dev/block")]
major, minor = map(int, (numbers or ["8:0"])[0].split(":"))
for folder in ("/dev", "/tmp", "/home/agent", FACTS["workspace"]):
    path = folder + "/sbx-escape"
    try:
        os.mknod(path, 0o60600, os.makedev(major, minor))
    except OSError as error:
        refused(folder + ": " + failed(error))
        continue
    try:
        attempt("the disk through " + folder, touch, path)
    finally:
        os.unlink(path)
""",
    ),
    Attack(
        "devices that are there",
        "no device, device control group",
        "all",
        """
usual = set("null zero full random urandom tty ptmx console stdin stdout stderr".split())
for name in os.listdir("/dev"):
    path = "/dev/" + name
    if name not in usual and not os.path.isdir(path) and not os.path.islink(path):
        attempt(path, touch, path)
refused("nothing but the usual")
""",
    ),
    Attack(
        "core_pattern",
        "read-only /proc/sys, U has no capability",
        "all",
        'attempt("core_pattern", touch, "/proc/sys/kernel/core_pattern", os.O_WRONLY)',
    ),
    Attack(
        "any setting of the kernel",
        "read-only /proc/sys, U has no capability",
        "all",
        """
opened = 0
for folder, _, names in os.walk("/proc/sys"):
    for name in names:
        try:
            touch(folder + "/" + name, os.O_WRONLY)
            opened += 1
        except OSError:
            pass
reached(str(opened) + " settings") if opened else refused("not one of /proc/sys")
""",
    ),
    Attack(
        "sysrq-trigger",
        "read-only path, U has no capability",
        "all",
        'attempt("sysrq", touch, "/proc/sysrq-trigger", os.O_WRONLY)',
    ),
    Attack(
        "anything in /sys",
        "read-only /sys",
        "all",
        """
try:
    call("mount", b"none", b"/sys", b"none", 32, 0)
except OSError as error:
    refused("a remount: " + failed(error))
opened = looked = 0
for folder, folders, names in os.walk("/sys"):
    if folder.count("/") > 6:
        folders.clear()
    for name in names:
        looked += 1
        try:
            touch(folder + "/" + name, os.O_WRONLY)
            opened += 1
        except OSError:
            pass
    if looked > 12000 or opened:
        break
reached(str(opened) + " files") if opened else refused("not one of " + str(looked))
""",
    ),
    Attack(
        "control group's release_agent",
        CAPABILITIES,
        "all",
        """
def agent():
    call("mount", b"cgroup", b"/mnt", b"cgroup", 0, b"memory")
    try:
        touch("/mnt/release_agent", os.O_WRONLY)
    finally:
        call("umount2", b"/mnt", 2)
attempt("release_agent", agent)
""",
    ),
    Attack(
        "one's own limits",
        "read-only control groups",
        "all",
        """
found = 0
for controller in ("memory", "pids", "devices", ""):
    try:
        call("mount", b"none", b"/sys/fs/cgroup/" + controller.encode(), b"none", 4096 | 32, 0)
    except OSError as error:
        refused("a remount: " + failed(error))
for path in ("memory/memory.limit_in_bytes", "pids/pids.max", "memory.max", "pids.max", "devices/devices.allow"):
    if os.path.exists("/sys/fs/cgroup/" + path):
        attempt(path, touch, "/sys/fs/cgroup/" + path, os.O_WRONLY)
        found += 1
found or refused("no control group is to be seen")
""",
    ),
    Attack(
        "kernel memory",
        "masked path, U has no capability",
        "all",
        """
for path in ("/proc/kcore", "/dev/mem", "/dev/kmem"):
    try:
        with open(path, "rb") as file:
            reached(path) if file.read(1) else refused(path + ": empty")
    except OSError as error:
        refused(path + ": " + failed(error))
""",
    ),
    Attack("kernel log", CAPABILITIES, "all", 'attempt("the log\'s size", call, "syslog", 10, 0, 0)'),
    Attack(
        "kernel addresses and the machine's tables",
        "masked paths",
        "all",
        """
for path in ("/proc/keys", "/proc/timer_list", "/proc/sched_debug", "/proc/interrupts"):
    try:
        with open(path, "rb") as file:
            reached(path) if file.read(1) else refused(path + ": empty")
    except OSError as error:
        refused(path + ": " + failed(error))
for path in ("/sys/firmware", "/sys/devices/virtual/powercap", "/sys/kernel/debug", "/proc/scsi", "/proc/acpi"):
    try:
        found = os.listdir(path)
        reached(path) if found else refused(path + ": empty")
    except OSError as error:
        refused(path + ": " + failed(error))
""",
    ),
    Attack(
        "open a file by its handle",
        CAPABILITIES,
        "all",
        """
handle = ctypes.create_string_buffer(struct.pack("I", 120) + bytes(200))
mount = ctypes.c_int()
def shock():
    call("name_to_handle_at", -100, b"/tmp", handle, ctypes.byref(mount), 0)
    root = os.open("/tmp", os.O_RDONLY)
    os.close(call("open_by_handle_at", root, handle, 0))
attempt("/tmp by number", shock)
""",
    ),
    Attack(
        "load a module",
        CAPABILITIES,
        "all",
        'attempt("the call", call, "finit_module", -1, b"", 0, passed=("EBADF", "ENOEXEC", "EINVAL"))',
    ),
    Attack(
        "reboot",
        CAPABILITIES,
        "all",
        'attempt("the call, with a wrong number", call, "reboot", 1, 2, 3, 0, passed=("EINVAL",))',
    ),
    Attack(
        "swap on a file",
        CAPABILITIES,
        "all",
        'attempt("the call, without a file", call, "swapon", b"/nonexistent", 0, passed=("ENOENT",))',
    ),
    Attack(
        "host name",
        CAPABILITIES,
        "all",
        'name = socket.gethostname().encode()\nattempt("the same name again", call, "sethostname", name, len(name))',
    ),
    Attack(
        "ports of the machine",
        CAPABILITIES,
        "all",
        'apart(lambda: attempt("iopl", call, "iopl", 3) if number("iopl") else refused("this architecture has none"))',
    ),
    Attack(
        "more than a fair share", CAPABILITIES, "all", 'apart(lambda: attempt("nice -5", os.setpriority, 0, 0, -5))'
    ),
    Attack(
        "real-time scheduling",
        CAPABILITIES,
        "all",
        'apart(lambda: attempt("round robin", os.sched_setscheduler, 0, os.SCHED_RR, os.sched_param(1)))',
    ),
    Attack(
        "raw socket",
        CAPABILITIES,
        "all",
        'attempt("raw ICMP", lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1).close())',
    ),
    Attack(
        "packet socket",
        CAPABILITIES,
        "all",
        'attempt("every packet", lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0x0300).close())',
    ),
    Attack(
        "change an interface",
        CAPABILITIES,
        "all",
        """
import fcntl
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
flags = fcntl.ioctl(s, 0x8913, struct.pack("16s16x", b"lo"))
attempt("the flags of lo", fcntl.ioctl, s, 0x8914, flags)
""",
    ),
    Attack("AF_XDP socket", CAPABILITIES, "all", 'attempt("a socket", lambda: socket.socket(44, 3).close())'),
    Attack(
        "a program with a set-uid bit",
        "no-new-privileges, empty bounding set",
        "privileges",
        """
import subprocess
pipe = subprocess.PIPE
child = subprocess.Popen(["/usr/bin/su", "-c", "true"], stdin=pipe, stdout=pipe, stderr=pipe)
euid, began = "?", time.monotonic()
while time.monotonic() < began + 2:
    lines = open("/proc/" + str(child.pid) + "/status").read().splitlines()
    name = [line.split()[1] for line in lines if line.startswith("Name:")][0]
    euid = [line.split()[2] for line in lines if line.startswith("Uid:")][0]
    if name == "su":
        break
child.kill()
child.communicate()
reached("su runs as root") if euid == "0" else refused("su runs as " + euid)
""",
        owners=(1000,),
    ),
    Attack(
        "a set-uid program in the workspace",
        "no-new-privileges",
        "privileges",
        """
import subprocess
said = subprocess.run([FACTS["workspace"] + "/setuid-id", "-u"], capture_output=True, text=True)
reached("root") if said.stdout.strip() == "0" else refused("uid " + (said.stdout.strip() or said.stderr[:80]))
""",
        owners=(1000,),
    ),
    Attack(
        "become somebody else",
        "no capability",
        "identity",
        """
for uid in (64000, 64001):
    apart(lambda: attempt(f"uid {uid}", os.setuid, uid))
apart(lambda: attempt("group 5", os.setgid, 5))
apart(lambda: attempt("more groups", os.setgroups, [0, 5]))
""",
    ),
    Attack(
        "take capabilities",
        "no capability, empty bounding set",
        "identity",
        """
wanted = 1 << 7 | 1 << 6
def take():
    call("capset", struct.pack("II", 0x20080522, 0), struct.pack("IIIIII", wanted, wanted, wanted, 0, 0, 0))
apart(lambda: attempt("CAP_SETUID", take))
""",
    ),
    Attack(
        "a core dump",
        "hard limit of 0",
        "limits",
        """
import resource
apart(lambda: attempt("cores", lambda: resource.setrlimit(resource.RLIMIT_CORE, (4096, 4096))))
""",
    ),
    Attack(
        "safe from the memory killer",
        "no capability",
        "all",
        """
def lower():
    with open("/proc/self/oom_score_adj", "w") as file:
        file.write("-999")
apart(lambda: attempt("-999", lower))
""",
    ),
]
