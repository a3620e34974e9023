"""A server of tools for the tests, in plain Python; its first argument says how it misbehaves."""

import json
import os
import sys
import time

MODE = sys.argv[1] if len(sys.argv) > 1 else "good"
OBJECT = {"type": "object", "properties": {"text": {"type": "string"}}}


def tool(name, description="for tests", schema=OBJECT, **more):
    return {"name": name, "description": description, "inputSchema": schema, **more}


TOOLS = {
    "names": [
        tool("echo"),
        tool("echo", "the same name again"),
        tool("with space"),
        tool("x" * 80),
        tool("", "no name"),
        tool("über"),
        tool("long", "d" * 10_000),
    ],
    "huge": [tool("good"), tool("huge", schema={"type": "object", "description": "x" * 100_000})],
    "array": [tool("array", schema={"type": "array"})],
    "properties": [tool("properties", schema={"type": "object", "properties": []})],
    "empty": [tool("empty", schema={})],
    "no-schema": [{"name": "bad", "inputSchema": "none"}],
    "lies": [tool("echo", outputSchema={"type": "object", "properties": {"a": {"pattern": "^(a+)+$"}}})],
    "many": [tool(f"t{n}") for n in range(500)],
}.get(MODE, [tool("echo"), tool("hang"), tool("die"), tool("big"), tool("error"), tool("image"), tool("env")])


def send(message):
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def call(name, given):
    text = given.get("text", "")
    match name:
        case "hang":
            time.sleep(600)
        case "die":
            sys.stderr.write("going down\n")
            sys.stderr.flush()
            os._exit(3)
        case "big":
            text = "b" * 1_000_000
        case "error":
            return {"content": [{"type": "text", "text": "it went wrong"}], "isError": True}
        case "image":
            return {"content": [{"type": "image", "data": "AAAA", "mimeType": "image/png"}]}
        case "env":
            text = f"{os.getuid()} {os.environ.get('MARK')} {os.getcwd()}"
    result = {"content": [{"type": "text", "text": text}]}
    if MODE == "lies":
        result["structuredContent"] = {"a": "a" * 40 + "!"}
    return result


if MODE == "silent":
    time.sleep(600)
if MODE == "exits":
    sys.exit("no licence")
if MODE == "flood":
    while True:
        send({"method": "notifications/message", "params": {"level": "info", "data": "x"}})
if MODE == "line":
    while True:
        sys.stdout.write("x" * 65536)
if MODE == "noise":
    print("Welcome to the server!\n\n{not json", flush=True)

for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    match message["method"]:
        case "initialize":
            version = message["params"]["protocolVersion"]
            result = {
                "protocolVersion": version,
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "t", "version": "1"},
            }
        case "tools/list":
            result = {"tools": TOOLS}
            if MODE == "endless":
                result["nextCursor"] = "more"
        case "tools/call":
            result = call(message["params"]["name"], message["params"].get("arguments") or {})
        case _:
            send({"id": message["id"], "error": {"code": -32601, "message": "no such method"}})
            continue
    send({"id": message["id"], "result": result})
