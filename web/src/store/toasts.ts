// Short notes at the edge of the page: what was done, or why not.
import { signal } from "@preact/signals";
import { errorOf } from "../api/client";
import { loggedOut } from "./session";

export interface Toast {
  id: number;
  kind: "done" | "error";
  text: string;
}

export const toasts = signal<Toast[]>([]);
let last = 0;

export function toast(text: string, kind: Toast["kind"] = "done"): void {
  const id = ++last;
  toasts.value = [...toasts.value.slice(-3), { id, kind, text }];
  setTimeout(() => dismiss(id), kind === "done" ? 5000 : 12_000);
}

export function dismiss(id: number): void {
  toasts.value = toasts.value.filter((t) => t.id !== id);
}

// attempt does something, says how it went, and reports whether it succeeded.
export async function attempt(what: () => Promise<unknown>, done?: string): Promise<boolean> {
  try {
    await what();
    if (done) toast(done);
    return true;
  } catch (e) {
    const err = errorOf(e);
    loggedOut(err);
    toast(err.message, "error");
    return false;
  }
}
