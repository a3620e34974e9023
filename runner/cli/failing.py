"""How an error is told: a few lines for people, or one JSON document."""

from __future__ import annotations

import json
import sys

from runner.errors import SbxError


def report(error: SbxError, *, as_json: bool = False) -> None:
    """Prints the error: on stderr for people, and with `as_json` as one document on stdout."""
    from runner.frontends.render import error_lines
    from runner.frontends.terminal import Output
    from runner.gateway.redaction import mask_error

    mask_error(error)
    if as_json:
        try:
            print(json.dumps({"error": error.to_json()}), flush=True)
            return
        except BrokenPipeError:
            raise
        except OSError:  # a full disk, say: then it is told to people
            pass
    Output(sys.stderr).lines(error_lines(error))
