"""Composing and checking kits, after imports: `python bench/kits.py`.

Prints the best and the median of several runs and the bound. The exit code judges the best: what other programs do on
the machine at the same time is not the kits' doing.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from runner.kits.compose import compose
from runner.kits.load import load_kit
from runner.kits.validate import validate

MIXINS = 8
SPECS = 100
COMPOSE_BOUND = 0.020
VALIDATE_BOUND = 0.5

MIXIN = """\
schemaVersion: "2"
kind: mixin
name: tool{n}
version: "1.{n}.0"
description: A mixin as people write them, number {n}
args:
  version: {{default: "{n}.0.0", pattern: '^[0-9]+(\\.[0-9]+)*$'}}
permissions:
  network:
    allow: [a{n}.example.org, "*.b{n}.example.org", c{n}.example.org:8443, "**.d{n}.example.org"]
credentials:
  - service: service{n}
    apiKey:
      name: SERVICE{n}_KEY
      inject:
        - {{domain: a{n}.example.org, scheme: bearer}}
environment:
  variables: {{TOOL{n}_HOME: /opt/tool{n}, TOOL{n}_VERSION: "${{{{ kit.args.version }}}}"}}
setup:
  install:
    - command: |
        set -euo pipefail
        curl -fsSL https://a{n}.example.org/tool-${{{{ kit.args.version }}}}.tar.gz -o /tmp/tool.tar.gz
        echo "0000  /tmp/tool.tar.gz" | sha256sum -c
        tar -xzf /tmp/tool.tar.gz -C /opt
      description: Install the tool
    - {{command: "npm install -g plugin{n}", user: agent}}
  startup:
    - command: [sh, -c, "mkdir -p ~/.tool{n}"]
  files:
    - path: /home/agent/.tool{n}/config.json
      content: '{{"workdir": "${{WORKDIR}}"}}'
      mode: "0600"
      onlyIfMissing: true
volumes:
  - {{path: /home/agent/.cache/tool{n}, size: 1g}}
agentInstructions:
  content: |
    The tool number {n} is there. Call it as `tool{n}`.
"""


def measure(work: Callable[[], object], times: int) -> tuple[float, float]:
    """Best and median seconds of `times` runs."""
    seconds = []
    for _ in range(times):
        started = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - started)
    return min(seconds), statistics.median(seconds)


def main() -> int:
    with tempfile.TemporaryDirectory() as name:
        top = Path(name)
        for n in range(MIXINS):
            home = top / f"tool{n}/files/home"
            home.mkdir(parents=True)
            (home / ".toolrc").write_text(f"version = ${{{{ kit.args.version }}}}\nnumber = {n}\n")
            (top / f"tool{n}/spec.yaml").write_text(MIXIN.format(n=n))
        mixins = "".join(f"  - ../tool{n}\n" for n in range(MIXINS))
        (top / "box").mkdir()
        (top / "box/spec.yaml").write_text(
            'schemaVersion: "2"\nkind: sandbox\nname: box\nsandbox: {image: debian:bookworm-slim}\nmixins:\n' + mixins
        )
        load_kit(top / "tool0")  # imports
        plan = compose(top / "box")
        best, median = measure(lambda: compose(top / "box"), 30)
        folders = [top / f"tool{n % MIXINS}" for n in range(SPECS)]
        check_best, check_median = measure(lambda: validate(folders), 5)
    print(f"compose and hash a kit with {len(plan.layers) - 1} mixins: ", end="")
    print(f"best {best * 1000:.1f} ms, median {median * 1000:.1f} ms (bound {COMPOSE_BOUND * 1000:.0f} ms)")
    print(f"validate {SPECS} specs: best {check_best:.3f} s, median {check_median:.3f} s (bound {VALIDATE_BOUND} s)")
    return 0 if best <= COMPOSE_BOUND and check_best <= VALIDATE_BOUND else 1


if __name__ == "__main__":
    sys.exit(main())
