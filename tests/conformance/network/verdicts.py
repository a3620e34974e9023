"""Verdicts written by hand for one set of rules: a host, then ports, each `+` (may pass) or `-` (is refused).

No allowed place is anything but a name that does not resolve or a port of this machine where nothing listens: the
requests are real ones.
"""

from __future__ import annotations

RULES = [
    *("--allow", "example.invalid"),
    *("--allow", "plain.invalid:80"),
    *("--allow", "range.invalid:8000-8010"),
    *("--allow", "every.invalid:*"),
    *("--allow", "*.one.invalid"),
    *("--allow", "**.deep.invalid:*"),
    *("--allow", "bücher.invalid"),
    *("--allow", "127.5.0.0/16:9"),
    *("--allow", "127.6.0.1:9"),
    *("--allow", "host.docker.internal:9"),
    *("--allow", "private.invalid:9"),
    *("--allow", "named.invalid:9"),
    *("--resolve", "named.invalid=127.0.0.1"),
    *("--deny", "bad.one.invalid:*"),
    *("--deny", "**.shut.deep.invalid:*"),
    *("--deny", "every.invalid:22"),
    *("--deny", "127.5.9.0/24:9"),
]

TABLE = """
example.invalid +443 -80 -8443 -444 -442 -1 -65535 -22 -25 -53
EXAMPLE.invalid +443 -80
Example.Invalid. +443 -80
example.invalid.. -443
www.example.invalid -443 -80
example.invalid.evil.invalid -443
notexample.invalid -443
example.invali -443
example-invalid -443
example -443
invalid -443
xexample.invalid -443
example.invalid.com -443
other.invalid -443 -80 -8443 -22
plain.invalid +80 -443 -8080 -81 -79 -8
PLAIN.INVALID +80 -443
sub.plain.invalid -80 -443
range.invalid +8000 +8001 +8005 +8009 +8010 -7999 -8011 -443 -80 -800 -80000
www.range.invalid -8000 -8005
every.invalid +1 +21 -22 +23 +80 +443 +8080 +9000 +65535
EVERY.invalid. +80 -22
sub.every.invalid -80 -443
one.invalid -443 -80
www.one.invalid +443 -80 -8443
api.one.invalid +443 -80
WWW.One.Invalid +443 -80
www.one.invalid. +443
a.b.one.invalid -443 -80
bad.one.invalid -443 -80
BAD.ONE.INVALID. -443
worse.bad.one.invalid -443
notone.invalid -443
xone.invalid -443
one.invalid.evil.invalid -443
www.one.invalid.evil.invalid -443
deep.invalid -443 -80
a.deep.invalid +443 +80 +1 +65535
a.b.deep.invalid +443 +80
a.b.c.d.e.deep.invalid +443 +22
shut.deep.invalid +443 +80
a.shut.deep.invalid -443 -80
a.b.shut.deep.invalid -443 -80
A.SHUT.DEEP.INVALID -443
xdeep.invalid -443
xn--bcher-kva.invalid +443 -80
XN--BCHER-KVA.invalid +443
bucher.invalid -443
xn--bcher-kvb.invalid -443
localhost -443 -80 -9 -22
localhost.localdomain -443
sub.localhost -9
private.invalid +9 -443 -80
named.invalid +9 -443 -80
host.docker.internal +9 -443 -80 -8 -10 -2375 -22
HOST.docker.internal. +9 -443
www.host.docker.internal -9
gateway.docker.internal -9
127.0.0.1 -9 -443 -80 -22 -2375
127.1 -9 -443
2130706433 -9 -443
0x7f000001 -9 -443
0x7f.1 -9
0177.0.0.1 -9 -443
127.0.1 -9
0 -9 -443
0.0.0.0 -9 -443
127.5.0.1 +9 -443 -80
127.5.1.1 +9 -8
127.5.8.255 +9
127.5.9.0 -9
127.5.9.1 -9 -443
127.5.9.255 -9
127.5.10.0 +9
127.5.255.255 -443
127.4.255.254 -9
127.6.0.1 +9 -443 -80
127.6.0.2 -9
127.6.1 +9
0x7f.6.0.1 +9
0177.6.0.1 +9
2131099649 +9 -443
127.6.0.1. +9
127.6.0.256 -9
127.6.0.1.1 -9
10.0.0.1 -9 -443 -80
10.255.255.255 -443
172.16.0.1 -443
172.31.255.255 -443
192.168.0.1 -443 -80
192.168.1.1 -9
169.254.169.254 -80 -443 -9
169.254.0.1 -80
100.64.0.1 -443
100.100.100.200 -80
168.63.129.16 -80
224.0.0.1 -443
239.255.255.250 -1900
255.255.255.255 -443
198.18.0.1 -443
[::1] -9 -443 -80
[::] -9 -443
[::ffff:127.0.0.1] -9 -443
[::ffff:127.5.0.1] +9 -443
[::ffff:127.5.9.1] -9
[::ffff:127.6.0.1] +9 -443
[::ffff:10.0.0.1] -443
[::ffff:7f00:1] -9
[0:0:0:0:0:ffff:7f00:0001] -9
[fe80::1] -443
[fc00::1] -443
[fd00:ec2::254] -80
[ff02::1] -443
[64:ff9b::7f00:1] -9
[2002:7f00:1::] -9
metadata.invalid -80
metadata -80
1.2.3.4.5 -443
1.2.3.999 -443
999 -443
"""


def cases() -> list[tuple[str, int, bool]]:
    """Host, port, and whether a request may pass."""
    found = []
    for line in TABLE.strip().splitlines():
        host, *ports = line.split()
        found += [(host, int(port[1:]), port[0] == "+") for port in ports if int(port[1:]) < 65536]
    return found
