// Where the page is: all of it is in the fragment of the address, so a link pasted to a
// colleague opens the same place, and Back works.
//
//   #/runs?status=waiting      the list with its filters
//   #run_01…?at=12&view=log    one run
//   #/agents/hello             any other view: its name, and what it is about
import { signal } from "@preact/signals";

export interface Route {
  view: string;
  id: string;
  params: URLSearchParams;
}

function parse(hash: string): Route {
  const text = hash.replace(/^#/, "");
  const cut = text.indexOf("?");
  const path = cut < 0 ? text : text.slice(0, cut);
  const params = new URLSearchParams(cut < 0 ? "" : text.slice(cut + 1));
  const parts = path.split("/").filter(Boolean).map(decode);
  if (parts[0]?.startsWith("run_")) return { view: "run", id: parts[0], params };
  return { view: parts[0] ?? "runs", id: parts.slice(1).join("/"), params };
}

function decode(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

export const route = signal<Route>(parse(location.hash));
addEventListener("hashchange", () => {
  route.value = parse(location.hash);
});

export function href(view: string, id = "", params?: URLSearchParams | Record<string, string>): string {
  const q = new URLSearchParams(params).toString();
  const path = view === "run" ? encodeURIComponent(id) : "/" + view + (id ? "/" + id.split("/").map(encodeURIComponent).join("/") : "");
  return "#" + path + (q ? "?" + q : "");
}

export const runHref = (id: string): string => href("run", id);

export function go(to: string): void {
  location.hash = to;
}

// setParams changes parameters of the view that is open. An empty value takes one away.
// replace leaves no step for Back, for what is no place of its own.
export function setParams(change: Record<string, string>, replace = false): void {
  const r = route.value;
  const params = new URLSearchParams(r.params);
  for (const [k, v] of Object.entries(change)) {
    if (v) params.set(k, v);
    else params.delete(k);
  }
  const to = href(r.view, r.id, params);
  if (to === location.hash) return;
  if (replace) {
    history.replaceState(null, "", to);
    route.value = parse(to);
  } else {
    location.hash = to;
  }
}
