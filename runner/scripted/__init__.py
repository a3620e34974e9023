"""The scripted model: a real OpenAI-compatible HTTP server whose answers come from a script.

    request  what a client asked, and the parts of it that answers may quote
    answers  the kinds of answer, well-behaved ones and faults
    script   YAML into answers, checked when it is loaded
    server   sockets, SSE, the record of requests

`--demo` uses it to show a run without a model; the tests use it, with faults, as the one stand-in for model servers.
It always says that it is scripted, and is never chosen by itself.
"""

from runner.scripted.answers import Answer, Chunks, Pause, Raw, Reply, Say
from runner.scripted.request import Call, Request
from runner.scripted.script import DEMO, Script, load_script
from runner.scripted.server import ScriptedServer

__all__ = [
    "DEMO",
    "Answer",
    "Call",
    "Chunks",
    "Pause",
    "Raw",
    "Reply",
    "Request",
    "Say",
    "Script",
    "ScriptedServer",
    "load_script",
]
