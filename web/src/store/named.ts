// Resources that have a name and settings, such as triggers: the list, the one that is open, and changes.
import { batch, signal, type Signal } from "@preact/signals";
import { type ApiError, errorOf, get, request } from "../api/client";
import { List } from "./list";
import { loggedOut } from "./session";

export class Named<T extends { name: string }> {
  readonly list: List<T>;
  // one is the resource that is open: it may have more than an item of the list.
  readonly one: Signal<T | null> = signal(null);
  readonly error: Signal<ApiError | null> = signal(null);
  private wanted = "";

  constructor(private readonly root: string) {
    this.list = new List<T>(() => root + "?limit=200", 10_000);
  }

  async read(name: string): Promise<void> {
    try {
      const item = await get<T>(this.path(name));
      if (this.wanted !== name) return;
      batch(() => {
        this.one.value = item;
        this.error.value = null;
      });
    } catch (e) {
      if (this.wanted !== name) return;
      this.error.value = errorOf(e);
      loggedOut(this.error.value);
    }
  }

  // open reads one until the function that it returns is called.
  open(name: string): () => void {
    this.wanted = name;
    this.one.value = null;
    this.error.value = null;
    void this.read(name);
    const timer = setInterval(() => {
      if (!document.hidden) void this.read(name);
    }, 5000);
    return () => {
      this.wanted = "";
      clearInterval(timer);
    };
  }

  async put(name: string, settings: object): Promise<void> {
    const item = await request<T>("PUT", this.path(name), { body: settings });
    if (this.wanted === name) void this.read(name);
    const items = this.list.items.peek();
    this.list.items.value = items.some((i) => i.name === name) ? items.map((i) => (i.name === name ? item : i)) : [...items, item];
  }

  async delete(name: string): Promise<void> {
    await request("DELETE", this.path(name));
    this.list.items.value = this.list.items.peek().filter((i) => i.name !== name);
  }

  private path(name: string): string {
    return `${this.root}/${encodeURIComponent(name)}`;
  }
}
