// Triggers: the list, one with its state, and changes.
import { batch, computed, signal, type Signal } from "@preact/signals";
import { type ApiError, errorOf, get, request } from "../api/client";
import type { Trigger, TriggerSettings } from "../api/types";
import { settingsOf } from "../lib/trigger";
import { List } from "./list";
import { loggedOut } from "./session";

export const triggers = new List<Trigger>(() => "/v1/triggers?limit=200", 10_000);

const path = (name: string): string => `/v1/triggers/${encodeURIComponent(name)}`;

// one is the trigger that is open: a list has no numbers of messages.
const trigger: Signal<Trigger | null> = signal(null);
const error: Signal<ApiError | null> = signal(null);
export const one = computed(() => ({ trigger: trigger.value, error: error.value }));

export async function readTrigger(name: string): Promise<void> {
  try {
    const t = await get<Trigger>(path(name));
    if (wanted !== name) return;
    batch(() => {
      trigger.value = t;
      error.value = null;
    });
  } catch (e) {
    if (wanted !== name) return;
    error.value = errorOf(e);
    loggedOut(error.value);
  }
}

let wanted = "";

// openTrigger reads a trigger until the function that it returns is called.
export function openTrigger(name: string): () => void {
  wanted = name;
  trigger.value = null;
  error.value = null;
  void readTrigger(name);
  const timer = setInterval(() => {
    if (!document.hidden) void readTrigger(name);
  }, 5000);
  return () => {
    wanted = "";
    clearInterval(timer);
  };
}

export async function putTrigger(name: string, settings: TriggerSettings): Promise<void> {
  const t = await request<Trigger>("PUT", path(name), { body: settings });
  if (wanted === name) void readTrigger(name); // with its numbers
  const items = triggers.items.peek();
  triggers.items.value = items.some((i) => i.name === name) ? items.map((i) => (i.name === name ? t : i)) : [...items, t];
}

export const pauseTrigger = (t: Trigger, paused: boolean): Promise<void> => {
  const { paused: _, ...rest } = settingsOf(t);
  return putTrigger(t.name, paused ? { ...rest, paused } : rest);
};

export async function deleteTrigger(name: string): Promise<void> {
  await request("DELETE", path(name));
  triggers.items.value = triggers.items.peek().filter((t) => t.name !== name);
}
