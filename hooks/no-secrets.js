#!/usr/bin/env node
"use strict";
// preGeneration: stops a question that holds a secret, before the model, the history or the record sees it.
//
// Two ways to be wrong: to let a secret through, and to stop people who only talk about passwords. Tokens have a
// fixed form and are caught by it. A password has none, so what stands after the word decides: it must look like
// a value ("My password: hunter2"), not like a sentence, code or a placeholder ("password: str", "password=$DB_PASS").
// The answer names what was found, never the value.

const { serve, HookError } = require("./hook_io.js");

const TOKENS = [
  ["a private key", /-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----/g],
  ["an Anthropic key", /(?<![A-Za-z0-9])sk-ant-[A-Za-z0-9_-]{16,200}/g],
  ["an OpenAI-style key", /(?<![A-Za-z0-9])sk-[A-Za-z0-9_-]{16,200}/g],
  ["a GitHub token", /(?<![A-Za-z0-9])(?:gh[pousr]_[A-Za-z0-9]{20,255}|github_pat_[A-Za-z0-9_]{20,255})/g],
  ["a GitLab token", /(?<![A-Za-z0-9])glpat-[A-Za-z0-9_-]{20,100}/g],
  ["an AWS key", /(?<![A-Za-z0-9])(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}(?![A-Za-z0-9])/g],
  ["an AWS key", /aws.{0,20}?secret.{0,20}?["']?\s{0,5}[:=]\s{0,5}["']?([A-Za-z0-9/+]{40})(?![A-Za-z0-9/+])/gi],
  ["a Google key", /(?<![A-Za-z0-9])AIza[A-Za-z0-9_-]{35}/g],
  ["a Slack token", /(?<![A-Za-z0-9])xox[abeprs]-[A-Za-z0-9-]{10,200}/g],
  ["a Stripe key", /(?<![A-Za-z0-9])[sr]k_live_[A-Za-z0-9]{16,200}/g],
  ["a signed token (JWT)", /(?<![A-Za-z0-9])eyJ[\w-]{10,2000}\.eyJ[\w-]{10,4000}\.[\w-]{10,1000}/g],
];

const WORD = "(?:password|passwd|passphrase|passcode|passwort|kennwort|mot de passe|contraseña|senha|wachtwoord|(?<![\\p{L}\\p{N}])(?:pwd|pw))";
const OWNER = "(?:my|our|his|her|their|your|the|root|admin|user|login|account|wifi|wi-fi|database|db|mein|mon|mi)";
// "password", perhaps "for the server", then a mark or "is", then what may be the value and what follows it.
const AFTER = new RegExp(
  `((?<![\\p{L}])${OWNER}[\\s_-]{1,3}(?:[\\p{L}\\p{N}-]{1,20}[\\s_-]){0,3}?)?${WORD}(s?)["'\`]?` +
    `(?:\\s{1,3}\\(?(?:for|to|of|on|at|in)\\s[^\\n:=.?!]{1,40}?)?` +
    `(\\s{0,5}(?::=|=>|->|→|[:=：＝])\\s{0,5}|\\s{1,3}(?:is|was|ist|es|est)(?:\\s{0,2}:)?\\s{1,3}|(?<=--?[a-z-]{0,20}${WORD})\\s{1,3})` +
    `("[^"\\n]{1,200}"|'[^'\\n]{1,200}'|\`[^\`\\n]{1,200}\`|[^\\s"'\`]{1,200})([^\\n]{0,40})`,
  "giu",
);
// "log in with password hunter2", "hunter2 is my password"
const WITH = new RegExp(`(?<![\\p{L}])(?:with|the|use|using|set|mit)\\s(?:the\\s|my\\s)?${WORD}\\s(?:to\\s)?([^\\s]{6,200})`, "giu");
const BEFORE = new RegExp(`([^\\s]{6,200})\\s(?:is|as)\\s(?:my|our|the|a)\\s(?:[\\p{L}-]{1,20}\\s)?${WORD}(?!\\s?[\\p{L}])`, "giu");
const IN_URL = /(?<![A-Za-z0-9])[a-z][a-z0-9+.-]{1,20}:\/\/[^\s:/@"']{0,100}:([^\s/@"']{1,200})@/gi;
const BY_CURL = /(?<![\w-])(?:curl|wget|http)(?=\s)[^\n]{0,200}?\s(?:-u|--user)[\s=]{0,2}["']?[^\s:"']{1,64}:([^\s"']{1,100})/gi;
const PIN = /(?<![\p{L}])(?:my|our|his|her)\s(?:[\p{L}]{1,12}\s)?pin(?:\s(?:code|number))?\s{0,3}(?::|=|is)\s{0,3}\d{4,8}(?!\d)/giu;
const API_KEY = /(?:api|secret|access|auth|private|client)[\s_-]?(?:key|token|secret)["'`]?\s{0,5}(?::=|[:=]|\sis\s)\s{0,5}["'`]?([A-Za-z0-9_+/.=-]{16,300})/gi;

const PLACEHOLDER = new RegExp(
  "^(?:x+|\\*+|\\.+|…|-+|_+|none|null|nil|undefined|true|false|str|string|text|bytes|int|any|todo|tbd|changeme|change_me|" +
    "required|optional|hidden|redacted|removed|masked|empty|blank|encrypted|hashed|secret|value|token|example|" +
    "(?:your|my|the|new|old|user|some|enter|db)?[-_ ]?(?:password|passwd|passphrase|pass|pwd|pw)(?:[-_ ]?here)?)$",
  "i",
);
const ENCODING = /^(?:base-?\d+|sha-?\d+|md5|utf-?\d+|ascii|argon2\w*|bcrypt|scrypt|pbkdf2|aes-?\d*|rot13|ntlm(?:v2)?|oauth2?|2fa|mfa|x509|pkcs\d*)(?:-\w+)?$/i;
const UNIT = /^\s{1,3}(?:or more |to \d+ )?(?:char|letter|digit|symbol|bit|byte|word|day|week|month|year|hour|minute|second|time|attempt|%)/i;
const COMMON = new Set(
  ("a about again all also always an and any are as ask at available bad be because been best better between both box but by can case check " +
    "column correct could default did different do does each either enter error even expired expires field file first fine for form from get " +
    "given good has have he help here how i if in incorrect input invalid is it its just kept label last least less let lets like long longer make " +
    "managers may minimum missing more most must my need needs never no not now null of off ok on one only or other our out over page parameter " +
    "please policy prompt question reset rules safe same saved see set short should show so some still stored strong such than that the their them " +
    "then there these they this those to too two unclear understand unknown until up use used user using valid very want was we weak well were what when " +
    "where which who why will with wrong would yes you your").split(" "),
);

serve("no-secrets", (event) => {
  if (typeof event.prompt !== "string") throw new HookError("the event has no prompt");
  const found = secrets(event.prompt);
  if (!found.length) return undefined;
  const what = found.join(" and ");
  return {
    action: "stop",
    reason: `the question holds ${what}`,
    response:
      `🔐 Your question seems to hold ${what}, so I stopped it here. The model never saw the question, and it was not ` +
      "kept. Ask again without it: name the file or the variable where it is stored instead.",
  };
});

/** Names of the kinds of secrets in a text, each once. */
function secrets(written) {
  const text = written.normalize("NFKC").replace(/[\u00ad\u200b-\u200d\u2060\ufeff]/g, "");
  const found = new Set();
  for (const [name, pattern] of TOKENS) {
    for (const match of text.matchAll(pattern)) {
      if (name === "a private key" || looksRandom(match[1] || match[0])) found.add(name);
    }
  }
  if (found.has("an Anthropic key")) found.delete("an OpenAI-style key");
  for (const match of text.matchAll(AFTER)) if (isPassword(match)) found.add("a password");
  for (const match of text.matchAll(WITH)) if (hasLetterAndDigit(bare(match[1])) && strong(bare(match[1]))) found.add("a password");
  for (const match of text.matchAll(BEFORE)) if (hasLetterAndDigit(bare(match[1])) && strong(bare(match[1]))) found.add("a password");
  for (const pattern of [IN_URL, BY_CURL]) {
    for (const match of text.matchAll(pattern)) if (!isPlaceholder(match[1])) found.add("a password");
  }
  if (PIN.test(text)) found.add("a PIN");
  PIN.lastIndex = 0;
  if (!found.size) for (const match of text.matchAll(API_KEY)) if (looksRandom(match[1])) found.add("an API key");
  return [...found];
}

function isPassword([, owner, plural, mark, written, rest]) {
  const quoted = /^["'`]/.test(written);
  const value = quoted ? written.slice(1, -1) : bare(written);
  if (isPlaceholder(value)) return false;
  const says = /[\p{L}]/u.test(mark); // "is" rather than a mark
  if (UNIT.test(rest)) return false;
  if (!plural && quoted && !/\s/.test(value) && value.length >= 4) return true;
  if (strong(value)) return true;
  if (plural || says || quoted || COMMON.has(value.toLowerCase())) return false;
  if (!/^[\p{L}\p{N}_-]{4,64}$/u.test(value)) return false;
  // A plain word: a value when somebody owns it, or when it is written like a setting, but not like code.
  if (owner && mark.includes(":")) return !/^\s*[([]/.test(rest);
  return mark === "=" && !/[(),.[\]]/.test(written.slice(value.length)) && !/^\s*[),]/.test(rest);
}

/** Whether a value looks like no word of a sentence and no name in code. */
function strong(value) {
  if (value.length < 4 || isPlaceholder(value) || ENCODING.test(value)) return false;
  if (/[()[\]{}<>]/.test(value)) return false; // code
  if (/^\d+$/.test(value)) return true;
  return /[\p{L}]/u.test(value) ? /[0-9!@#$%^&*+=?~]/.test(value) : /\d/.test(value) && /[!@#$%^&*+?~-]/.test(value);
}

function isPlaceholder(value) {
  return PLACEHOLDER.test(value) || /^(?:\$|%\w|<|\{|\[|\.{0,2}\/|~\/|\\)/.test(value) || /^(?:os|process|env|config|settings|self|args)\./.test(value) || /^https?:/.test(value) || /^(.)\1*$/u.test(value);
}

/** The value without the punctuation of the sentence it stands in. */
function bare(value) {
  return value.replace(/^["'`“‘«(]+/u, "").replace(/["'`”’»),.;:!?…—–]+$/u, "");
}

function hasLetterAndDigit(value) {
  return /[\p{L}]/u.test(value) && /\d/.test(value);
}

/** Whether a token's characters are mixed as only a made one's are: `sk-this-is-only-a-long-name` is not. */
function looksRandom(token) {
  const longest = Math.max(...token.split(/[-_.]/).map((part) => part.length));
  return longest >= 10 && /\d/.test(token) && /[A-Za-z]/.test(token) && new Set(token).size >= 8;
}
