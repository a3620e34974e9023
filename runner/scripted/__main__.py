"""`python -m runner.scripted [SCRIPT] [--host HOST] [--port PORT]`: serves a script until it is interrupted."""

from __future__ import annotations

import argparse
import signal
import sys
from pathlib import Path

from runner.errors import SbxError
from runner.scripted.script import DEMO, load_script
from runner.scripted.server import ScriptedServer

DEFAULT_PORT = 17434
"""Where the provider `llmman` is looked for."""


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m runner.scripted",
        description="Serve scripted answers as an OpenAI-compatible model server. It is not a model.",
    )
    parser.add_argument("script", nargs="?", type=Path, default=DEMO, help="YAML script (default: the demo's)")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
    parser.add_argument("--port", type=int, default=DEFAULT_PORT, help="port, 0 for a free one (default: %(default)s)")
    arguments = parser.parse_args(argv)
    signals = {signal.SIGINT, signal.SIGTERM}
    # blocked before the first thread starts, so that only sigwait below gets them
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    try:
        with ScriptedServer(load_script(arguments.script), arguments.host, arguments.port) as server:
            print(f"scripted model (not a real one) on {server.url}", flush=True)
            signal.sigwait(signals)
    except SbxError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
