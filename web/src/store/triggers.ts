// Triggers. Of those, a list has no numbers of messages.
import type { Trigger } from "../api/types";
import { settingsOf } from "../lib/settings";
import { Named } from "./named";

export const triggers = new Named<Trigger>("/v1/triggers");

export function pauseTrigger(t: Trigger, paused: boolean): Promise<void> {
  const { paused: _, ...rest } = settingsOf(t);
  return triggers.put(t.name, paused ? { ...rest, paused } : rest);
}
