#!/usr/bin/env node
"use strict";
// preGeneration: adds today's date and the names in the workspace to the question.
//
// Small models do not know the date and guess file names. Set `user: owner` on it where the workspace is closed to others.

const fs = require("node:fs");
const { serve, HookError } = require("./hook_io.js");

const MOST_NAMES = 100; // more would crowd out the question
const MOST_READ = 5000; // directory entries looked at

serve("add-context", (event) => {
  if (typeof event.cwd !== "string" || !event.cwd) throw new HookError("the event has no cwd");
  return { context: `Today is ${today()}.\n${files(event.cwd)}` };
});

function today() {
  const now = new Date();
  const two = (number) => String(number).padStart(2, "0");
  const day = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"][now.getDay()];
  return `${day}, ${now.getFullYear()}-${two(now.getMonth() + 1)}-${two(now.getDate())}`;
}

function files(folder) {
  const names = [];
  let more = 0;
  try {
    const directory = fs.opendirSync(folder);
    try {
      for (let read = 0, entry; (entry = directory.readSync()) !== null; read++) {
        if (read >= MOST_READ) {
          more = -1;
          break;
        }
        if (!entry.name.startsWith(".")) names.push(shown(entry.name) + (entry.isDirectory() ? "/" : ""));
      }
    } finally {
      directory.closeSync();
    }
  } catch (error) {
    return `The files of the workspace cannot be listed (${error.code || error.name}).`;
  }
  if (!names.length) return "The workspace holds no files.";
  names.sort();
  const some = names.slice(0, MOST_NAMES);
  if (more === 0) more = names.length - some.length;
  const rest = more < 0 ? ", and many more" : more > 0 ? `, and ${more} more` : "";
  return `Files in the workspace: ${some.join(", ")}${rest}`;
}

// A file's name is chosen by whoever made the file: it must not look like further lines of context.
function shown(name) {
  return /[\p{C}\p{Zl}\p{Zp},]/u.test(name) ? JSON.stringify(name.replace(/[\p{C}\p{Zl}\p{Zp}]/gu, "?")) : name;
}
