// Text of models, as Markdown that can do nothing: HTML in it is shown as text, what comes
// out is sanitized against a short list, and nothing is loaded because a text said so.
import DOMPurify, { type Config } from "dompurify";
import type { JSX } from "preact";
import { useLayoutEffect, useRef } from "preact/hooks";
import { grow, isPlain, noBlocks } from "../lib/blocks";
import { target } from "../lib/links";
import { html } from "../lib/markdown";
import { visible } from "../lib/visible";
import { memo } from "./memo";

const tags = ["p", "br", "hr", "h1", "h2", "h3", "h4", "h5", "h6", "strong", "em", "del", "code", "pre", "blockquote", "ul", "ol", "li", "table", "thead", "tbody", "tr", "th", "td", "a", "span"];
const rules: Config & { RETURN_DOM_FRAGMENT: true } = {
  ALLOWED_TAGS: tags,
  ALLOWED_ATTR: ["href", "align", "start", "class"],
  ALLOW_DATA_ATTR: false,
  ALLOW_ARIA_ATTR: false,
  RETURN_DOM_FRAGMENT: true,
};

function safe(html: string): DocumentFragment {
  const out = DOMPurify.sanitize(html, rules);
  for (const e of out.querySelectorAll("[class]")) if (!(e.tagName === "SPAN" && e.className === "no-image")) e.removeAttribute("class");
  for (const a of out.querySelectorAll("a")) link(a);
  const texts = document.createNodeIterator(out, NodeFilter.SHOW_TEXT);
  for (let t = texts.nextNode() as Text | null; t; t = texts.nextNode() as Text | null) t.data = visible(t.data);
  return out;
}

// link shows where a link leads, if its text does not.
function link(a: HTMLAnchorElement): void {
  const to = target(a.textContent ?? "", a.getAttribute("href") ?? "");
  if (!to) return a.removeAttribute("href");
  a.href = to.href;
  a.rel = "noopener noreferrer nofollow";
  a.target = "_blank";
  a.title = to.href;
  if (!to.shows) return;
  // Text before it cannot change the order of what is in a bdi.
  const where = document.createElement("bdi");
  where.className = "link-host";
  where.textContent = `(${to.shows})`;
  a.append(" ", where);
}

export const Markdown = memo(function Markdown({ text }: { text: string }): JSX.Element {
  const ref = useRef<HTMLDivElement>(null);
  useLayoutEffect(() => {
    const el = ref.current!;
    const out = isPlain(text) ? null : html(text);
    if (out !== null) return el.replaceChildren(safe(out));
    const p = document.createElement("p");
    p.className = "as-written";
    p.textContent = visible(text);
    el.replaceChildren(p);
  }, [text]);
  return <div ref={ref} class="md" />;
});

// Growing is a Markdown text to which words are added: only its last block is drawn again.
export function Growing({ text }: { text: string }): JSX.Element {
  const blocks = useRef(noBlocks);
  const { done, tail } = (blocks.current = grow(blocks.current, text));
  return (
    <>
      {[...done, tail].map((block, i) => (
        <Markdown key={i} text={block} />
      ))}
    </>
  );
}
