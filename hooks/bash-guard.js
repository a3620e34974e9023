#!/usr/bin/env node
"use strict";
// preToolCall, matcher ^bash$: denies recursive deletion, sudo, and a download piped to a shell.
//
// A teaching example. It reads a command as a person skims it: words, quotes, pipes. Whoever wants to get past it
// can (`$(printf r)m -rf x`, a script in a file, another language), so the container is the boundary and this only
// turns honest mistakes into a clear "no". `policy.py` parses the shell's grammar and denies what it cannot decide.

const { serve, HookError } = require("./hook_io.js");

const SHELLS = new Set(["sh", "bash", "dash", "zsh", "ksh", "ash", "fish"]);
const INTERPRETERS = new Set([...SHELLS, "python", "python3", "perl", "ruby", "node", "php"]);
const DOWNLOADS = new Set(["curl", "wget", "fetch", "aria2c", "lwp-request"]);
const ROOT = new Set(["sudo", "doas", "pkexec", "su", "runuser"]);
// Words that stand before the command that really runs.
const BEFORE = new Set(["command", "builtin", "exec", "env", "nice", "nohup", "time", "timeout", "stdbuf", "setsid", "xargs", "busybox", "toybox",
  "ionice", "parallel", "then", "do", "else", "if", "while", "until", "elif", "!", "{", "(", "coproc", "function"]);
const DEEPEST = 8; // a command in a command in a command …
const LONGEST = 1024 * 1024; // characters of a command that is looked at

serve("bash-guard", (event) => {
  const tool = event.tool;
  if (!tool || typeof tool !== "object") throw new HookError("the event has no tool");
  const command = tool.input && tool.input.command;
  if (typeof command !== "string") {
    if (tool.name === "bash" || tool.name === "Bash") throw new HookError("the call has no command");
    return undefined; // not a shell's call; a matcher would have kept it away
  }
  if (command.length > LONGEST) throw new HookError("the command is too long to be checked");
  const reason = refused(command, 0);
  return reason ? { action: "deny", reason } : undefined;
}, "deny");

/** Why a command is refused, or "". */
function refused(command, depth) {
  if (depth > DEEPEST) return "the command is nested too deeply to be checked";
  const { pipelines, inner } = parse(command);
  for (const pipeline of pipelines) {
    let downloads = false;
    for (const written of pipeline) {
      const words = unwrapped(written);
      if (written.some((word, at) => ROOT.has(base(word)) && at <= written.length - words.length)) return "sudo is not allowed";
      if (!words.length) continue;
      const name = base(words[0]);
      const rest = words.slice(1);
      if (ROOT.has(name)) return "sudo is not allowed";
      const deletion = recursive(name, rest);
      if (deletion) return `recursive deletion (${deletion}) is not allowed`;
      if (downloads && INTERPRETERS.has(name.replace(/[\d.]+$/, ""))) return "a download piped to a shell is not allowed";
      if (DOWNLOADS.has(name)) downloads = true;
      if (INTERPRETERS.has(name) || name === "eval" || name === "source" || name === ".") {
        // `bash -c "$(curl …)"`, `source <(curl …)`
        if (rest.some((word) => /(?:\$\(|`|<\()\s*(?:curl|wget|fetch)\b/.test(word))) return "a download piped to a shell is not allowed";
      }
      for (const text of scripts(name, rest)) {
        const reason = refused(text, depth + 1);
        if (reason) return reason;
      }
    }
  }
  for (const text of inner) {
    const reason = refused(text, depth + 1);
    if (reason) return reason;
  }
  return "";
}

/** `rm -r`, `find -delete` … when a command deletes folders with what is in them; else "". */
function recursive(name, rest) {
  if (name === "rm") {
    for (const word of rest) {
      if (word === "--") break;
      if (/^-[A-Za-z]*[rR]/.test(word) || /^--r(?:e(?:c(?:u(?:r(?:s(?:i(?:v(?:e)?)?)?)?)?)?)?)?$/.test(word)) return "rm -r";
    }
  }
  if (name === "find" || name === "fd" || name === "fdfind") {
    if (rest.includes("-delete")) return "find -delete";
    const at = rest.findIndex((word) => /^(?:-exec|-execdir|-ok|-okdir|-x|-X|--exec|--exec-batch)$/.test(word));
    if (at >= 0) {
      const words = unwrapped(rest.slice(at + 1));
      if (words.length && base(words[0]) === "rm") return recursive("rm", words.slice(1)) || "find -exec rm";
    }
  }
  return "";
}

/** Texts that the command hands to a shell. */
function scripts(name, rest) {
  if (name === "eval") return [rest.join(" ")];
  if (!SHELLS.has(name)) return [];
  const at = rest.findIndex((word) => /^-[a-z]*c[a-z]*$/.test(word));
  return at >= 0 && rest[at + 1] !== undefined ? [rest[at + 1]] : [];
}

/** The words of the command that runs in the end, without assignments, wrappers and the wrappers' options. */
function unwrapped(words) {
  let at = 0;
  let wrapped = false;
  for (; at < words.length; at++) {
    const word = words[at];
    if (/^[A-Za-z_]\w*\+?=/.test(word)) continue;
    if (BEFORE.has(base(word)) || ROOT.has(base(word))) {
      wrapped = true;
      continue;
    }
    if (wrapped && (/^-/.test(word) || /^\d+(?:\.\d+)?[smhd]?$/.test(word) || word === "{}")) continue;
    break;
  }
  return words.slice(at);
}

function base(word) {
  return word.slice(word.lastIndexOf("/") + 1);
}

/** Splits a command into pipelines of commands of words, quotes removed; and the texts in `$(…)` and backquotes. */
function parse(text) {
  const pipelines = [];
  const inner = [];
  let pipeline = [];
  let words = [];
  let word = null; // null: between words; "" is a word too ('')
  const endWord = () => {
    if (word !== null) words.push(word);
    word = null;
  };
  const endCommand = () => {
    endWord();
    if (words.length) pipeline.push(words);
    words = [];
  };
  const endPipeline = () => {
    endCommand();
    if (pipeline.length) pipelines.push(pipeline);
    pipeline = [];
  };
  // Copies a substitution into the word as written, and keeps its text to be looked at by itself.
  const substitution = (from, open, close) => {
    let end = from + open.length;
    for (let depth = 1; end < text.length; end++) {
      if (text[end] === "\\") end++;
      else if (text[end] === close && --depth === 0) break;
      else if (open.endsWith("(") && text[end] === "(") depth++;
    }
    inner.push(text.slice(from + open.length, end));
    word = (word ?? "") + text.slice(from, end + 1);
    return end;
  };

  for (let at = 0; at < text.length; at++) {
    const char = text[at];
    if (char === "\\") {
      if (text[++at] !== "\n") word = (word ?? "") + (text[at] ?? "");
    } else if (char === "'") {
      const end = text.indexOf("'", at + 1);
      word = (word ?? "") + text.slice(at + 1, end < 0 ? undefined : end);
      at = end < 0 ? text.length : end;
    } else if (char === '"') {
      word = word ?? "";
      for (at++; at < text.length && text[at] !== '"'; at++) {
        if (text[at] === "\\" && '"\\$`\n'.includes(text[at + 1])) word += text[++at] === "\n" ? "" : text[at];
        else if (text.startsWith("$(", at)) at = substitution(at, "$(", ")");
        else if (text[at] === "`") at = substitution(at, "`", "`");
        else word += text[at];
      }
    } else if (text.startsWith("$(", at)) {
      at = substitution(at, "$(", ")");
    } else if (text.startsWith("<(", at) || text.startsWith(">(", at)) {
      at = substitution(at, text.slice(at, at + 2), ")");
    } else if (char === "`") {
      at = substitution(at, "`", "`");
    } else if (char === "#" && word === null) {
      const end = text.indexOf("\n", at);
      at = end < 0 ? text.length : end - 1;
    } else if (char === "|" && text[at + 1] !== "|") {
      endCommand();
      if (text[at + 1] === "&") at++;
    } else if (char === "|" || char === ";" || char === "\n") {
      endPipeline();
      if (text[at + 1] === char) at++;
    } else if (char === "&" && text[at + 1] !== ">" && text[at - 1] !== ">" && text[at - 1] !== "<") {
      endPipeline();
      if (text[at + 1] === "&") at++;
    } else if (char === "(" || char === ")") {
      endPipeline();
    } else if (char === " " || char === "\t") {
      endWord();
    } else {
      word = (word ?? "") + char;
    }
  }
  endPipeline();
  return { pipelines, inner };
}
