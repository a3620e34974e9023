"use strict";
// What every hook in this folder shares: read one JSON object from stdin, hand it to `handle`, print the answer.
//
// The same code serves a hook that is started for each event (input ends) and one with `persistent: true` (one line
// in, one line out): when the first line is a whole JSON object it is answered at once, and reading goes on.
// Errors name the hook and the kind of trouble, never the input, which may hold what the hook is there to hide.

const TOO_LARGE = 64 * 1024 * 1024; // bytes of one event; more cannot be meant

/**
 * @param {string} name the hook's name, for messages
 * @param {(event: object) => object | undefined | void} handle the answer; nothing means "continue"
 * @param {"error" | "deny"} failing what to answer when the event cannot be read or `handle` throws.
 *   A hook that judges tool calls denies; any other says that it failed, and its `onError` decides.
 */
exports.serve = (name, handle, failing = "error") => {
  const fail = (why) => ({ action: failing, reason: `${name}: ${why}` });

  const answer = (bytes) => {
    let event;
    try {
      event = JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(bytes));
    } catch {
      return fail("the event is not JSON in UTF-8");
    }
    if (event === null || typeof event !== "object" || Array.isArray(event)) return fail("the event is not an object");
    try {
      return handle(event);
    } catch (error) {
      // Only errors of this project and of the system carry a text that holds nothing of the event.
      const why = error instanceof exports.HookError ? error.message : error.code || error.name;
      return fail(String(why));
    }
  };

  let pending = [];
  let size = 0;
  let byLine = null; // not known before the first line is whole
  let closed = false;
  const say = (result, always) => {
    if (closed) return;
    const text = result === undefined || result === null ? (always ? "{}\n" : "") : JSON.stringify(result) + "\n";
    if (text) process.stdout.write(text);
  };

  process.stdout.on("error", () => { closed = true; }); // the reader went away: nothing left to tell
  process.stdin.on("error", () => { process.exitCode = 1; });
  process.stdin.on("data", (chunk) => {
    while (byLine !== false) {
      const end = chunk.indexOf(10);
      if (end < 0) break;
      const line = Buffer.concat([...pending, chunk.subarray(0, end)]);
      if (byLine === null) {
        byLine = isObject(line);
        if (!byLine) break;
      }
      pending = [];
      size = 0;
      chunk = chunk.subarray(end + 1);
      if (line.toString("latin1").trim()) say(answer(line), true);
    }
    size += chunk.length;
    if (size > TOO_LARGE) {
      say(fail("the event is too large"), true);
      process.exit(0);
    }
    if (chunk.length) pending.push(chunk);
  });
  process.stdin.on("end", () => {
    const rest = Buffer.concat(pending);
    if (byLine && !rest.toString("latin1").trim()) return;
    say(answer(rest), false);
  });
};

/** An error whose message holds nothing of the event and may be shown. */
exports.HookError = class HookError extends Error {};

function isObject(bytes) {
  try {
    const value = JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(bytes));
    return value !== null && typeof value === "object";
  } catch {
    return false;
  }
}
