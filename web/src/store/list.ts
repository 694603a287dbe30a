// A list of the API that is read when its view is opened, and again while it is looked at.
import { batch, effect, signal, type Signal } from "@preact/signals";
import { type ApiError, errorOf, get, passes, tenant } from "../api/client";
import type { Page } from "../api/types";
import { loggedOut, ready } from "./session";

const longest = 30_000; // a reading that takes longer is given up on

export class List<T, P extends Page<T> = Page<T>> {
  readonly items: Signal<T[]> = signal([]);
  readonly page: Signal<P | null> = signal(null); // the first one, with what else it says
  readonly error: Signal<ApiError | null> = signal(null);
  readonly loaded = signal(false);
  readonly loading = signal(false);
  readonly cursor: Signal<string | null> = signal(null);
  private generation = 0;

  // every is after how many milliseconds the list is read anew; 0 is never, once it was read.
  // pages is how many pages are read at a time: a list of many is read less often.
  constructor(
    private readonly path: () => string,
    private readonly every = 0,
    private readonly pages = 1,
  ) {}

  // open reads the list until the function that it returns is called.
  open(): () => void {
    const stop = effect(() => {
      tenant.value;
      const path = this.path();
      this.generation++;
      batch(() => {
        this.loading.value = false;
        this.items.value = [];
        this.page.value = null;
        this.loaded.value = false;
        this.error.value = null;
        this.cursor.value = null;
      });
      if (ready.value && path) void this.load();
    });
    // Somebody who has read on below keeps what they have read.
    const again = (): void => {
      const failed = this.error.peek();
      if (document.hidden || (this.loading.peek() && Date.now() - this.began < longest) || this.paged || !ready.peek() || !this.path()) return;
      if (failed ? !passes(failed) : !this.every) return;
      if (++this.rests >= this.cost) void this.load();
    };
    const timer = setInterval(again, this.every || 5000);
    return () => {
      this.generation++;
      clearInterval(timer);
      stop();
    };
  }

  private paged = false;
  private cost = 1; // in pages
  private rests = 0;
  private began = 0;

  async load(): Promise<void> {
    const mine = ++this.generation;
    this.loading.value = true;
    this.paged = false;
    this.rests = 0;
    this.cost = 1;
    this.began = Date.now();
    try {
      const page = await this.read(this.path());
      const items = page.items.slice();
      let next = page.next_cursor;
      for (; next && this.cost < this.pages && mine === this.generation; this.cost++) {
        const more = await get<P>(this.from(next));
        items.push(...more.items);
        next = more.next_cursor;
      }
      if (mine !== this.generation) return;
      batch(() => {
        this.page.value = page;
        this.items.value = items;
        this.cursor.value = next;
        this.error.value = null;
        this.loaded.value = true;
      });
    } catch (e) {
      if (mine === this.generation) this.fail(e);
    } finally {
      if (mine === this.generation) this.loading.value = false;
    }
  }

  async more(): Promise<void> {
    const from = this.cursor.peek();
    if (!from || this.loading.peek()) return;
    const mine = this.generation;
    this.loading.value = true;
    this.paged = true;
    try {
      const page = await get<P>(this.from(from));
      if (mine !== this.generation) return;
      batch(() => {
        this.items.value = [...this.items.peek(), ...page.items];
        this.cursor.value = page.next_cursor;
      });
    } catch (e) {
      if (mine === this.generation) this.fail(e);
    } finally {
      if (mine === this.generation) this.loading.value = false;
    }
  }

  protected read(path: string): Promise<P> {
    return get<P>(path);
  }

  private from(cursor: string): string {
    const path = this.path();
    return path + (path.includes("?") ? "&" : "?") + "cursor=" + encodeURIComponent(cursor);
  }

  private fail(e: unknown): void {
    this.error.value = errorOf(e);
    loggedOut(this.error.value);
  }
}
