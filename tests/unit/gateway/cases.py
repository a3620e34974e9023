"""Verdicts written by hand: for each policy, requests and whether they may pass.

`NAMES` is what the resolver answers; every other name has the address 1.2.3.4.
"""

from __future__ import annotations

from dataclasses import dataclass

NAMES: dict[str, tuple[str, ...]] = {
    "private.example.com": ("10.1.2.3",),
    "loop.example.com": ("127.0.0.1",),
    "six.example.com": ("2606:4700::1111",),
    "six-private.example.com": ("fd00::5",),
    "mapped.example.com": ("::ffff:10.1.2.3",),
    "nat64.example.com": ("64:ff9b::a01:203",),
    "metadata.example.com": ("169.254.169.254",),
    "mixed.example.com": ("1.2.3.4", "10.1.2.3"),
    "both.example.com": ("1.2.3.4", "2606:4700::1111"),
    "blocked.example.com": ("5.6.7.8",),
    "zero.example.com": ("0.0.0.0",),
    "multi.example.com": ("224.0.0.5",),
    "shared.example.com": ("100.64.1.1",),
    "localhost": ("127.0.0.1",),
}
PUBLIC = ("1.2.3.4",)


@dataclass(frozen=True)
class Case:
    rules: str
    """Allow rules; `-RULE` denies, `!RULE` stands in a policy file's allow, `open` is the preset."""
    host: str
    port: int
    passes: bool

    def __str__(self) -> str:
        return f"{self.rules or 'nothing'} : {self.host} {self.port} {'passes' if self.passes else 'is refused'}"


_TABLE = """
= nothing
no  example.com 443
no  example.com 80
no  1.2.3.4 443
no  127.0.0.1 443
no  localhost 443
no  host.docker.internal 443
= example.com
yes example.com 443
no  example.com 80
no  example.com 8443
no  example.com 444
yes EXAMPLE.COM 443
yes Example.Com. 443
no  example.com.. 443
no  www.example.com 443
no  example.com.evil.invalid 443
no  notexample.com 443
no  example.co 443
no  example 443
no  xexample.com 443
no  example.com-evil.invalid 443
no  1.2.3.4 443
= EXAMPLE.com.
yes example.com 443
no  example.com 80
= example.com:80
yes example.com 80
no  example.com 443
no  example.com 8080
no  example.com 8
= example.com:80-90
yes example.com 80
yes example.com 85
yes example.com 90
no  example.com 79
no  example.com 91
no  example.com 443
= example.com:*
yes example.com 1
yes example.com 22
yes example.com 443
yes example.com 65535
no  other.example.com 443
= *.example.com
yes www.example.com 443
yes API.example.com 443
no  example.com 443
no  a.b.example.com 443
no  www.example.com 80
no  wwwexample.com 443
no  www.example.com.evil.invalid 443
no  private.example.com 443
no  loop.example.com 443
yes six.example.com 443
no  six-private.example.com 443
no  mapped.example.com 443
no  nat64.example.com 443
no  metadata.example.com 443
no  mixed.example.com 443
yes both.example.com 443
no  zero.example.com 443
no  multi.example.com 443
no  shared.example.com 443
= **.example.com
yes www.example.com 443
yes a.b.example.com 443
yes a.b.c.d.example.com 443
no  example.com 443
no  evilexample.com 443
no  www.example.com 8443
= *.example.com:8000-8010
yes www.example.com 8000
yes www.example.com 8010
no  www.example.com 8011
no  www.example.com 443
= **.example.com:*
yes a.b.example.com 9000
no  example.com 9000
= *.com
yes example.com 443
no  www.example.com 443
no  com 443
= 1.2.3.4
yes 1.2.3.4 443
yes 0x1020304 443
yes 16909060 443
yes 1.2.772 443
yes 01.02.03.04 443
yes 0x1.0x2.0x3.0x4 443
yes 1.131844 443
no  1.2.3.5 443
no  1.2.3.4 80
no  example.com 443
no  1.2.3.256 443
no  1.2.3.4.5 443
= 1.2.3.4:8080
yes 1.2.3.4 8080
no  1.2.3.4 443
= 1.2.0.0/16
yes 1.2.3.4 443
yes 1.2.255.255 443
no  1.3.0.0 443
no  1.2.3.4 80
no  example.com 443
= 1.2.0.0/16:80-81
yes 1.2.9.9 80
yes 1.2.9.9 81
no  1.2.9.9 443
= 10.1.2.3
yes 10.1.2.3 443
yes 167838211 443
yes 0xa010203 443
yes 012.1.2.3 443
no  10.1.2.4 443
no  10.1.2.3 80
no  private.example.com 443
= 10.1.2.3 private.example.com
yes private.example.com 443
no  private.example.com 80
= 10.0.0.0/8 *.example.com
yes private.example.com 443
yes mapped.example.com 443
yes mixed.example.com 443
yes nat64.example.com 443
no  loop.example.com 443
no  metadata.example.com 443
no  six-private.example.com 443
= 10.0.0.0/8:8080 private.example.com
no  private.example.com 443
= 10.0.0.0/8:8080 private.example.com:8080
yes private.example.com 8080
= fd00::/8 *.example.com
yes six-private.example.com 443
yes [fd00::1] 443
no  private.example.com 443
= [2606:4700::1111]
yes [2606:4700::1111] 443
yes [2606:4700:0:0:0:0:0:1111] 443
yes [2606:4700::0:1111] 443
no  [2606:4700::1112] 443
no  [2606:4700::1111] 80
= [2606:4700::1111]:80
yes [2606:4700::1111] 80
no  [2606:4700::1111] 443
= 2606:4700::/32
yes [2606:4700::1111] 443
no  [2607:4700::1111] 443
= [2606:4700::]/32:8000-9000
yes [2606:4700::2] 8500
no  [2606:4700::2] 443
= open
yes example.com 443
yes example.com 80
yes example.com 25
yes a.b.c.example.com 12345
yes 1.2.3.4 443
yes [2606:4700::1111] 443
no  127.0.0.1 443
no  127.0.0.1 80
no  127.1 80
no  2130706433 80
no  0x7f000001 80
no  0177.0.0.1 80
no  0 80
no  0.0.0.0 80
no  localhost 80
no  10.0.0.1 443
no  172.16.0.1 443
no  192.168.1.1 443
no  169.254.169.254 80
no  2852039166 80
no  100.64.0.1 443
no  100.100.100.200 80
no  168.63.129.16 80
no  224.0.0.1 443
no  240.0.0.1 443
no  255.255.255.255 443
no  192.0.2.1 443
no  198.18.0.1 443
no  [::1] 80
no  [::] 80
no  [::ffff:127.0.0.1] 80
no  [::ffff:7f00:1] 80
no  [::ffff:10.0.0.1] 443
no  [::127.0.0.1] 80
no  [64:ff9b::7f00:1] 80
no  [64:ff9b::a9fe:a9fe] 80
no  [2002:7f00:1::] 80
no  [2002:a00:1::] 80
no  [fe80::1] 80
no  [fd00::1] 80
no  [fd00:ec2::254] 80
no  [ff02::1] 80
no  [fec0::1] 80
no  private.example.com 443
no  loop.example.com 80
no  mapped.example.com 443
no  metadata.example.com 80
no  mixed.example.com 443
no  zero.example.com 80
no  host.docker.internal 443
no  host.docker.internal 17434
no  bad_host-.example.com 443
no  exa$mple.com 443
no  -example.com 443
no  example..com 443
no  .example.com 443
no  1.2.3.4.example.com.300 443
= open -example.com:*
no  example.com 443
no  example.com 80
no  EXAMPLE.com. 80
yes www.example.com 443
yes example.org 443
= open -example.com
no  example.com 443
yes example.com 80
= open -**.example.com:*
no  www.example.com 443
no  a.b.example.com 80
yes example.com 443
= open -5.6.0.0/16:*
no  blocked.example.com 443
no  blocked.example.com 80
no  5.6.7.8 443
no  84281096 443
yes example.com 443
= *.example.com -www.example.com
no  www.example.com 443
yes api.example.com 443
= example.com -example.com
no  example.com 443
= example.com -*.com
no  example.com 443
= 10.0.0.0/8 -10.1.2.3
no  10.1.2.3 443
yes 10.1.2.4 443
= host.docker.internal:8080
yes host.docker.internal 8080
yes HOST.docker.internal. 8080
no  host.docker.internal 443
no  127.0.0.1 8080
no  localhost 8080
= host.docker.internal
yes host.docker.internal 443
no  host.docker.internal 80
= *.docker.internal:* **.internal:* 127.0.0.1:*
no  host.docker.internal 80
yes 127.0.0.1 80
= open -host.docker.internal:*
no  host.docker.internal 443
= host.docker.internal:8080 -*.docker.internal:*
no  host.docker.internal 8080
= bücher.example
yes xn--bcher-kva.example 443
yes XN--BCHER-KVA.example 443
no  bucher.example 443
= xn--bcher-kva.example
yes xn--bcher-kva.example 443
= example.com other.example !example.com
yes example.com 443
no  other.example 443
= example.com:80 !example.com
no  example.com 80
no  example.com 443
= open !**.example.com:*
yes www.example.com 80
no  example.org 443
no  private.example.com 443
= open 10.0.0.0/8 !**.example.com
no  private.example.com 443
= open 10.0.0.0/8 !**.example.com !10.0.0.0/8
yes private.example.com 443
no  10.1.2.3 80
= nothing !example.com
no  example.com 443
= host.docker.internal:8080 !example.com
no  host.docker.internal 8080
= under_score.example.com
yes under_score.example.com 443
"""


def cases() -> list[Case]:
    """The table as cases."""
    rules = ""
    found = []
    for line in _TABLE.strip().splitlines():
        if line.startswith("= "):
            rules = line[2:].replace("nothing", "").strip()
        else:
            verdict, host, port = line.split()
            found.append(Case(rules, host, int(port), {"yes": True, "no": False}[verdict]))
    return found
