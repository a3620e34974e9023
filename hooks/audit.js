#!/usr/bin/env node
"use strict";
// postToolCall and postGeneration: one JSON line for each tool call and each turn in `.mm/hooks-audit.jsonl`.
//
// A line is appended by one write to a file opened with O_APPEND, so that two sessions in one workspace do not mix
// their lines. A link in the place of the folder or of the file is refused: it could lead the line out of the workspace.

const fs = require("node:fs");
const { serve, HookError } = require("./hook_io.js");

const MOST_TEXT = 16 * 1024; // characters of one text in a line
const MOST_LINE = 256 * 1024; // bytes of a line
const { O_APPEND, O_CREAT, O_DIRECTORY, O_NOFOLLOW, O_NONBLOCK, O_RDONLY, O_WRONLY } = fs.constants;

serve("audit", (event) => {
  if (typeof event.cwd !== "string" || !event.cwd) throw new HookError("the event has no cwd");
  append(event.cwd, line(event));
});

function line(event) {
  const entry = { time: new Date().toISOString(), event: String(event.event), model: event.model };
  if (event.tool && typeof event.tool === "object") {
    entry.tool = event.tool.name;
    entry.id = event.tool.id;
    entry.input = event.tool.input;
    entry.output = event.output;
    entry.isError = event.isError === true;
  } else {
    for (const key of ["prompt", "answer", "error", "usage"]) entry[key] = event[key];
  }
  const text = JSON.stringify(entry, (_key, value) => (typeof value === "string" ? cut(value) : value));
  if (Buffer.byteLength(text) < MOST_LINE) return text + "\n";
  // Many texts that are each short enough: keep what the line is about.
  const { time, event: name, tool, id } = entry;
  return JSON.stringify({ time, event: name, tool: cut(String(tool)), id: cut(String(id)), cut: true }) + "\n";
}

function cut(text) {
  return text.length <= MOST_TEXT ? text : `${text.slice(0, MOST_TEXT)}… (${text.length} characters)`;
}

function append(workspace, text) {
  const folder = `${workspace}/.mm`;
  try {
    fs.mkdirSync(folder, 0o755);
  } catch (error) {
    if (error.code !== "EEXIST") throw error;
  }
  const at = open(folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW, "the folder .mm");
  try {
    // Through the descriptor: the folder cannot be swapped for a link between the two steps.
    const path = `/proc/self/fd/${at}/hooks-audit.jsonl`;
    const file = open(path, O_WRONLY | O_APPEND | O_CREAT | O_NOFOLLOW | O_NONBLOCK, "the file hooks-audit.jsonl");
    try {
      const found = fs.fstatSync(file);
      if (!found.isFile() || found.nlink !== 1) throw new HookError("hooks-audit.jsonl is not a file of its own");
      const bytes = Buffer.from(text);
      if (fs.writeSync(file, bytes) !== bytes.length) throw new HookError("the line was written in part only");
    } finally {
      fs.closeSync(file);
    }
  } finally {
    fs.closeSync(at);
  }
}

function open(path, flags, what) {
  try {
    return fs.openSync(path, flags, 0o644);
  } catch (error) {
    const link = error.code === "ELOOP" || error.code === "ENOTDIR" || error.code === "ENXIO";
    throw new HookError(link ? `${what} of the workspace is a link or not what it should be` : `${what}: ${error.code}`);
  }
}
