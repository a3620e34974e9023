"""Building a plan of four mixins against `docker build` of the same Dockerfile: `python bench/build.py [--rounds N]`.

Both build the same steps on the same base from nothing in the cache (`no_cache`), then with one byte of the last mixin
changed, when the cache holds all before it. Prints the best of each and their ratios; the bound is 1.1. The exit code
judges the best: what other programs do on the machine at the same time is not the build's doing.

Sealing (`sbx image build`: reading the image back, lock, recipe) is told beside it; a run does not do that.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from runner.engine import Engine, connect
from runner.images import build, dockerfile, sealed
from runner.kits.plan import Base, Install, Layer, Plan

NAME = "bench-build"
BOUND = 1.1
SECONDS_OF_WORK = 1.5
"""What each mixin's command takes: files are written and hashed, as a package manager does."""


def layer(kit: str, word: str) -> Layer:
    work = (
        f"echo {word} >/srv/{kit}; head -c 40000000 /dev/urandom >/srv/{kit}.data; "
        f"sha256sum /srv/{kit}.data >/srv/{kit}.sum; sleep {SECONDS_OF_WORK}"
    )
    digest = hashlib.sha256(work.encode()).hexdigest()
    return Layer(kit, "mixin", digest, (Install(work),))


def plan(last: str, start: str) -> Plan:
    layers = [layer(kit, "same") for kit in ("one", "two", "three")]
    return Plan(name=NAME, base=Base(start), layers=(*layers, layer("four", last)))


def by_hand(folder: Path, number: int, *, no_cache: bool) -> None:
    """`docker build` on the classic builder, which is what the SDK asks for too."""
    command = ["docker", "build", "-q", "--rm", "--force-rm", "-t", f"{NAME}-hand:{number}", str(folder)]
    if no_cache:
        command.insert(2, "--no-cache")
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env={**os.environ, "DOCKER_BUILDKIT": "0"})


def context(sample: Plan, start: str, into: Path) -> Path:
    text = dockerfile.render(sample, start, build.labels_of(sample, dockerfile.digest(sample)))
    packed = into.with_suffix(".tar")
    packed.write_bytes(dockerfile.context(sample, text))
    with tarfile.open(packed) as tar:
        tar.extractall(into, filter="data")
    return into


def timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def clean(engine: Engine) -> None:
    with engine.call("cleaning up after the bench"):
        for image in engine.api.images():
            for tag in image["RepoTags"] or ():
                if tag.startswith((f"sbx/{NAME}:", f"{NAME}-hand:")):
                    engine.api.remove_image(tag, force=True)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=3)
    rounds = parser.parse_args().rounds
    engine = connect()
    # On a base that has all a guest needs: how quick a mirror is today is not the question.
    start = build.ensure(engine, Plan(name=NAME, base=Base(), layers=())).tag
    whole: tuple[list[float], list[float]] = ([], [])
    last: tuple[list[float], list[float]] = ([], [])
    sealing: list[float] = []
    try:
        with tempfile.TemporaryDirectory() as place:
            for number in range(rounds):
                first, changed = plan(f"first{number}", start), plan(f"changed{number}", start)
                hand = [context(p, start, Path(place) / f"{number}{n}") for n, p in enumerate((first, changed))]
                # In turn, so that what the machine does otherwise hits both.
                whole[0].append(timed(lambda p=first: build.ensure(engine, p, no_cache=True)))
                last[0].append(timed(lambda p=changed: build.ensure(engine, p)))
                whole[1].append(timed(lambda f=hand[0], n=number: by_hand(f, n, no_cache=True)))
                last[1].append(timed(lambda f=hand[1], n=number: by_hand(f, n, no_cache=False)))
                sealing.append(timed(lambda p=changed: sealed.seal(engine, p, {})))
    finally:
        clean(engine)
    code = 0
    for title, (ours, theirs) in (("four mixins, no cache", whole), ("the last one changed", last)):
        ratio = min(ours) / min(theirs)
        code |= ratio > BOUND
        print(f"{title:<22} sbx {min(ours):6.2f} s   docker build {min(theirs):6.2f} s   ratio {ratio:.2f} (≤ {BOUND})")
    print(f"{'sealing, beside it':<22} {min(sealing):10.2f} s   (lock, manifest and recipe; not part of a run)")
    return code


if __name__ == "__main__":
    sys.exit(main())
