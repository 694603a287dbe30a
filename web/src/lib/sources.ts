// What an answer cites. Providers that return citations have them in the opaque content of a text,
// as they came: only Anthropic does.
import type { JSONValue, Part } from "../api/types";

export interface Source {
  title: string;
  url: string; // of the web; empty for a document without an address
  quotes: string[];
}

const text = (v: JSONValue | undefined): string => (typeof v === "string" ? v : "");

function web(address: string): string {
  try {
    const url = new URL(address);
    return url.protocol === "https:" || url.protocol === "http:" ? url.href : "";
  } catch {
    return "";
  }
}

// sourcesOf lists, each once, what the texts of a message cite, in their order.
export function sourcesOf(parts: readonly Part[]): Source[] {
  const found = new Map<string, Source>();
  for (const p of parts) {
    const opaque = p.type === "text" ? p.opaque : undefined;
    const citations = opaque && typeof opaque === "object" && !Array.isArray(opaque) ? opaque["citations"] : undefined;
    for (const c of Array.isArray(citations) ? citations : []) {
      if (!c || typeof c !== "object" || Array.isArray(c)) continue;
      const url = web(text(c["url"]));
      const title = text(c["title"]) || text(c["document_title"]) || url;
      if (!title) continue;
      const key = url || title;
      const source = found.get(key) ?? { title, url, quotes: [] };
      found.set(key, source);
      const quote = text(c["cited_text"]).trim();
      if (quote && !source.quotes.includes(quote)) source.quotes.push(quote);
    }
  }
  return [...found.values()];
}

// joined is parts with texts that follow each other in one: a provider begins another one with each
// citation, in the middle of a sentence.
export function joined(parts: readonly Part[]): Part[] {
  const out: Part[] = [];
  for (const p of parts) {
    const last = out.at(-1);
    if (last?.type === "text" && p.type === "text" && !last.origin && !p.origin) out[out.length - 1] = { ...last, text: (last.text ?? "") + (p.text ?? "") };
    else out.push(p);
  }
  return out;
}
