// A Markdown text that grows, in blocks: those that are finished are parsed once.
import { read } from "./markdown";

// isPlain is true of a text that is one paragraph without any mark of Markdown, as most of what models
// say between calls is: it needs no parser.
export const isPlain = (text: string): boolean => /^(?![\s\d#=+-])[^\n\r\t<>&*_`~[\]!\\|@]+$/.test(text) && !/\/\/|www\./i.test(text);

export interface Blocks {
  read: string; // the text of the finished blocks
  done: readonly string[];
  tail: string; // what may still change
}

export const noBlocks: Blocks = { read: "", done: [], tail: "" };

// grow is text in blocks. before is the same of its beginning: what is finished there is kept.
// A block is finished when another one follows that begins a line of its own. References to links
// that are defined elsewhere in the text stay as they are written until the text is shown whole.
export function grow(before: Blocks, text: string): Blocks {
  if (!text.startsWith(before.read)) before = noBlocks;
  const rest = text.slice(before.read.length);
  const tokens = read(rest.slice(0, rest.lastIndexOf("\n") + 1)) ?? [];
  const last = tokens.findLastIndex((t) => t.type !== "space");
  const done = [...before.done];
  let end = 0;
  let block = "";
  for (let i = 0; i < last; i++) {
    const t = tokens[i]!;
    block += t.raw;
    // Only a blank line parts two blocks for good.
    if (!/\n[ \t]*\n$/.test(block) && t.type !== "space") continue;
    if (block.trim()) done.push(block);
    end += block.length;
    block = "";
  }
  if (!end) return { ...before, tail: rest };
  return { read: text.slice(0, before.read.length + end), done, tail: rest.slice(end) };
}
