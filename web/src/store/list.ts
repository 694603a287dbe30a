// A list of the API that is read when its view is opened, and again while it is looked at.
import { batch, effect, signal, type Signal } from "@preact/signals";
import { type ApiError, errorOf, get, tenant } from "../api/client";
import type { Page } from "../api/types";
import { loggedOut, ready } from "./session";

export class List<T, P extends Page<T> = Page<T>> {
  readonly items: Signal<T[]> = signal([]);
  readonly page: Signal<P | null> = signal(null); // the first one, with what else it says
  readonly error: Signal<ApiError | null> = signal(null);
  readonly loaded = signal(false);
  readonly loading = signal(false);
  readonly cursor: Signal<string | null> = signal(null);
  private generation = 0;

  // every is after how many milliseconds the list is read anew; 0 is never.
  constructor(
    private readonly path: () => string,
    private readonly every = 0,
  ) {}

  // open reads the list until the function that it returns is called.
  open(): () => void {
    const stop = effect(() => {
      tenant.value;
      const path = this.path();
      batch(() => {
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
      if (!document.hidden && this.loaded.peek() && !this.paged && this.error.peek()?.status !== 403) void this.load();
    };
    const timer = this.every ? setInterval(again, this.every) : 0;
    return () => {
      this.generation++;
      clearInterval(timer);
      stop();
    };
  }

  private paged = false;

  async load(): Promise<void> {
    const mine = ++this.generation;
    this.loading.value = true;
    this.paged = false;
    try {
      const page = await get<P>(this.path());
      if (mine !== this.generation) return;
      batch(() => {
        this.page.value = page;
        this.items.value = page.items;
        this.cursor.value = page.next_cursor;
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
      const path = this.path();
      const page = await get<P>(path + (path.includes("?") ? "&" : "?") + "cursor=" + encodeURIComponent(from));
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

  private fail(e: unknown): void {
    this.error.value = errorOf(e);
    loggedOut(this.error.value);
  }
}
