// Views of the list of runs that the reader has named, in this browser. Each is the parameters of an address.
import { effect, signal } from "@preact/signals";

export interface Saved {
  name: string;
  params: string;
}

function read(): Saved[] {
  try {
    const list: unknown = JSON.parse(localStorage.getItem("views") ?? "[]");
    return Array.isArray(list) ? list.filter((v): v is Saved => typeof v?.name === "string" && typeof v?.params === "string") : [];
  } catch {
    return [];
  }
}

export const saved = signal<Saved[]>(read());

effect(() => {
  if (saved.value.length) localStorage.setItem("views", JSON.stringify(saved.value));
  else localStorage.removeItem("views");
});

// save names a view. It takes the place of one of the same name.
export function save(name: string, params: string): void {
  saved.value = [...saved.peek().filter((v) => v.name !== name), { name, params }].sort((a, b) => a.name.localeCompare(b.name));
}

export function forget(name: string): void {
  saved.value = saved.peek().filter((v) => v.name !== name);
}
