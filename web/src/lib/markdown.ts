// Markdown in HTML, with a bound on what that costs: the text may come from anybody.
import { Lexer, Marked, type Token, type TokensList } from "marked";

const longest = 200_000; // characters of a text that is laid out
const most = 60_000_000; // steps of the parser for that, as estimated below: a fraction of a second
const largest = 2_000_000; // characters of HTML: a link may be defined once and stand in many places

// blocks estimates the steps to find the blocks of a text. Each line of a table has as many cells as its head. In
// lists and quotes, the parser may read the rest of a paragraph for each line of it.
function blocks(text: string, within: boolean): number {
  const lines = text.split("\n");
  const cells = lines.length * lines.reduce((n, l) => Math.max(n, l.split("|").length - 1), 0);
  const paragraphs = text.split(/\n[ \t]*\n|\n(?=[ \t]*(?:[-*+]|\d+[.)]|>)[ \t>])/).filter((p) => within || /^\s*[-*+\d>]/.test(p));
  const again = paragraphs.reduce((n, p) => n + p.length * p.split("\n").length, 0);
  return (within ? 10 : 1) * text.length + 20 * lines.length + 300 * cells + again;
}

// marks estimates the steps to read a paragraph: for each mark the parser may read the rest of it, and for each
// character the rest of an address.
function marks(text: string): number {
  const found = text.match(/\*+|_+|~+|`+|[[(<&\\]/g) ?? [];
  const addresses = text.includes("@") ? (text.match(/[^\s@]{100,}/g) ?? []) : [];
  return addresses.reduce((n, a) => n + a.length ** 2, text.length * (1 + found.length));
}

// Reader is the parser of marked. It stops before a text takes too many steps.
class Reader extends Lexer {
  #steps = 0;

  #take(steps: number): void {
    this.#steps += steps;
    if (this.#steps > most) throw new RangeError("This text takes too long to lay out.");
  }

  // The type is that of two overloads, of which the second has links.
  override blockTokens(src: string, tokens?: Token[], lastParagraphClipped?: boolean): TokensList {
    this.#take(blocks(src, tokens !== this.tokens));
    return super.blockTokens(src, tokens, lastParagraphClipped) as TokensList;
  }

  override inlineTokens(src: string, tokens?: Token[]): Token[] {
    this.#take(marks(src));
    return super.inlineTokens(src, tokens);
  }
}

const escape = (s: string): string => s.replace(/[&<>"']/g, (c) => `&#${c.charCodeAt(0)};`);

const marked = new Marked({
  gfm: true,
  renderer: {
    html: ({ text }) => escape(text),
    image: ({ href, text }) => `<span class="no-image">image: ${escape(text || href)} (${escape(href)})</span>`,
    checkbox: ({ checked }) => (checked ? "☑ " : "☐ "),
  },
});

// read is the text in tokens. It is null if the text is too long for that, or too deep, or takes too many steps.
export function read(text: string): TokensList | null {
  if (text.length > longest) return null;
  try {
    return new Reader(marked.defaults).lex(text);
  } catch {
    return null;
  }
}

// html is the text in HTML, which is not sanitized yet, or null as read is: then it is shown as it is written.
export function html(text: string): string | null {
  const tokens = read(text);
  try {
    const out = tokens && marked.parser(tokens);
    return out !== null && out.length <= largest ? out : null;
  } catch {
    return null;
  }
}
