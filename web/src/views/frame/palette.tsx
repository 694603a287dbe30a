// The palette: jump to a run, an agent, a view, or search the list. / or Ctrl-K opens it.
import { signal } from "@preact/signals";
import type { JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { Dialog } from "../../parts/dialog";
import { gist, shortId } from "../../lib/words";
import { StatusMark } from "../../parts/status";
import { go, href, runHref } from "../../store/route";
import { filter, items } from "../../store/runs";
import { hasText } from "../../store/filter";
import { saved } from "../../store/saved";
import { ready } from "../../store/session";
import { openShortcuts, shortcut, typing } from "../../store/shortcuts";
import { toggleTheme } from "../../store/theme";
import { views } from "../views";

const open = signal(false);
export function openPalette(): void {
  if (ready.peek()) open.value = true;
}

addEventListener("keydown", (e) => {
  const k = (e.ctrlKey || e.metaKey) && e.key.toLowerCase() === "k";
  if (k || (e.key === "/" && shortcut(e) && !typing(e))) {
    e.preventDefault();
    openPalette();
  }
});

interface Choice {
  key: string;
  mark?: JSX.Element;
  text: string;
  more: string;
  act: () => void;
}

function choices(text: string): Choice[] {
  const out: Choice[] = [];
  const t = text.trim();
  const id = /^(run_)?[0-9A-Z]{26}$/i.exec(t);
  if (id) {
    const full = "run_" + t.replace(/^run_/i, "").toUpperCase();
    out.push({ key: full, text: full, more: "open this run", act: () => go(runHref(full)) });
  }
  if (t) {
    const p = new URLSearchParams();
    const m = /^([\w.-]+)=(.+)$/.exec(t);
    if (m) p.set("metadata." + m[1]!.replace(/^metadata\./, ""), m[2]!);
    else p.set("q", t);
    out.push({ key: "search", text: `Search runs: ${t}`, more: m ? "by metadata" : "in the newest 1,000", act: () => go(href("runs", "", p)) });
  }
  const now = Date.now();
  for (const r of items
    .peek()
    .filter((r) => !t || hasText(r, t))
    .slice(0, 8)) {
    const g = gist(r, now);
    out.push({ key: r.id, mark: <StatusMark status={r.status} />, text: `${r.agent} ${shortId(r.id)}`, more: [g.lead, g.text].filter(Boolean).join(": "), act: () => go(runHref(r.id)) });
  }
  const low = t.toLowerCase();
  for (const a of [...new Set(items.peek().map((r) => r.agent))].filter((a) => !t || a.toLowerCase().includes(low)).slice(0, 5))
    out.push({ key: "agent " + a, text: `Runs of ${a}`, more: "agent", act: () => go(href("runs", "", { agent: a })) });
  const jumps: Choice[] = [
    { key: "needs", text: "Runs that wait for approval", more: "view", act: () => go(href("runs", "", { waiting: "waiting_approval" })) },
    { key: "failed", text: "Runs that failed", more: "view", act: () => go(href("runs", "", { status: "failed" })) },
    ...saved.value.map((v) => ({ key: "saved " + v.name, text: v.name, more: "saved view", act: () => go(href("runs", "", new URLSearchParams(v.params))) })),
    ...Object.entries(views)
      .filter(([, v]) => v.nav || v.jump)
      .map(([name, v]) => ({ key: "view " + name, text: v.title, more: "view", act: () => go(href(name)) })),
    { key: "shortcuts", text: "Shortcuts", more: "?", act: openShortcuts },
    { key: "theme", text: "Switch between light and dark", more: "action", act: toggleTheme },
  ];
  out.push(...jumps.filter((c) => !t || c.text.toLowerCase().includes(low)));
  return out;
}

export function Palette(): JSX.Element | null {
  return open.value ? <Opened /> : null;
}

function Opened(): JSX.Element {
  const [text, setText] = useState(filter.peek().text);
  const [at, setAt] = useState(0);
  const input = useRef<HTMLInputElement>(null);
  useEffect(() => input.current?.select(), []);
  const found = choices(text);
  const here = Math.min(at, found.length - 1);
  const close = (): void => {
    open.value = false;
  };
  const choose = (c: Choice | undefined): void => {
    if (!c) return;
    close();
    c.act();
  };
  const key = (e: KeyboardEvent): void => {
    const move = (by: number): void => {
      const next = (here + by + found.length) % found.length;
      setAt(next);
      document.getElementById("palette-" + next)?.scrollIntoView({ block: "nearest" });
    };
    if (e.key === "ArrowDown" || (e.ctrlKey && e.key === "n")) move(1);
    else if (e.key === "ArrowUp" || (e.ctrlKey && e.key === "p")) move(-1);
    else if (e.key === "Enter") choose(found[here]);
    else return;
    e.preventDefault();
  };
  return (
    <Dialog title="Search or jump" close={close} wide>
      <input
        ref={input}
        class="palette-input"
        role="combobox"
        aria-expanded="true"
        aria-controls="palette-list"
        aria-activedescendant={found[here] ? "palette-" + here : undefined}
        aria-label="A run's id, an agent, key=value, or words"
        placeholder="A run's id, an agent, key=value, or words"
        value={text}
        onInput={(e) => {
          setText((e.target as HTMLInputElement).value);
          setAt(0);
        }}
        onKeyDown={key}
      />
      <ul id="palette-list" role="listbox" aria-label="Found" class="palette-list">
        {found.map((c, i) => (
          <li key={c.key} id={"palette-" + i} role="option" aria-selected={i === here} onClick={() => choose(c)} onMouseMove={() => setAt(i)}>
            {c.mark} <span class="clip">{c.text}</span> <span class="soft clip grow">{c.more}</span>
          </li>
        ))}
      </ul>
    </Dialog>
  );
}
