/** The checksum of a log record: CRC-32C over its texts, as the API describes it. */

import type { components } from "./wire/schema.js";

const table = Uint32Array.from({ length: 256 }, (_, byte) => {
  let sum = byte;
  for (let bit = 0; bit < 8; bit++) sum = sum & 1 ? (sum >>> 1) ^ 0x82f63b78 : sum >>> 1;
  return sum;
});
const encoder = new TextEncoder();

/** Computes the checksum of a record. `line` is the text that it was read from, `keys` are the keys of its writes. */
export function checksumOf(record: components["schemas"]["LogRecord"], line: string, keys: readonly (string | Uint8Array)[]): string {
  let sum = 0xffffffff;
  const add = (bytes: Uint8Array): void => {
    for (const byte of bytes) sum = (table[(sum ^ byte) & 0xff] ?? 0) ^ (sum >>> 8);
  };
  const piece = (text: string | Uint8Array): void => {
    const bytes = typeof text === "string" ? encoder.encode(text) : text;
    const length = new Uint8Array(4);
    new DataView(length.buffer).setUint32(0, bytes.length, true);
    add(length);
    add(bytes);
  };
  for (const text of [record.lsn, record.epoch, record.csn, record.version, record.txn_id]) piece(text);
  const values = valueTexts(line);
  record.writes.forEach(({ op, value_b64 }, at) => {
    piece(op);
    piece(keys[at] ?? "");
    piece(value_b64 === undefined ? (values[at] ?? "") : `{"$b64":"${value_b64}"}`);
  });
  return ((sum ^ 0xffffffff) >>> 0).toString(16).padStart(8, "0");
}

/** Returns the texts of the values of a record's writes, as they were posted. The line must be JSON. */
export function valueTexts(line: string): (string | undefined)[] {
  const texts: (string | undefined)[] = [];
  for (const [name, start] of members(line, 0)) {
    if (name !== "writes") continue;
    for (let at = blank(line, start + 1); line[at] !== "]"; at = following(line, skipped(line, at))) {
      let text: string | undefined;
      for (const [field, from, to] of members(line, at)) if (field === "value") text = line.slice(from, to);
      texts.push(text);
    }
  }
  return texts;
}

/** Yields the members of the object at a position: name, start and end of the value. */
function* members(text: string, start: number): Generator<[name: string, from: number, to: number]> {
  for (let at = blank(text, start + 1); text[at] !== "}"; ) {
    const end = skipped(text, at);
    const from = blank(text, blank(text, end) + 1);
    const to = skipped(text, from);
    yield [text.slice(at + 1, end - 1), from, to];
    at = following(text, to);
  }
}

/** Returns where the next item begins, or the bracket that ends the list. */
function following(text: string, end: number): number {
  const at = blank(text, end);
  return text[at] === "," ? blank(text, at + 1) : at;
}

/** Skips white space. */
function blank(text: string, start: number): number {
  let at = start;
  while (at < text.length && " \t\r\n".includes(text.charAt(at))) at++;
  return at;
}

/** Returns the end of the value at a position. */
function skipped(text: string, start: number): number {
  let at = start;
  for (let depth = 0; at < text.length; at++) {
    const char = text.charAt(at);
    if (char === '"') {
      for (at++; text[at] !== '"' && at < text.length; at++) if (text[at] === "\\") at++;
      if (depth === 0) return at + 1;
    } else if (char === "{" || char === "[") {
      depth++;
    } else if (char === "}" || char === "]") {
      if (depth === 0) return at;
      depth--;
      if (depth === 0) return at + 1;
    } else if (depth === 0 && (char === "," || " \t\r\n".includes(char))) {
      return at;
    }
  }
  return at;
}
