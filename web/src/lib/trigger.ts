// Settings of a trigger as a text that people edit.
import type { Trigger, TriggerSettings } from "../api/types";

// settingsOf returns what an author has set: what the gateway adds is not taken back.
export function settingsOf(t: Trigger): TriggerSettings {
  const { name: _1, status: _2, updated_at: _3, updated_by: _4, ...settings } = t;
  return settings;
}

// readSettings reads a text, or says what is wrong with it.
export function readSettings(text: string): { settings: TriggerSettings } | { fault: string } {
  try {
    const value: unknown = JSON.parse(text);
    if (typeof value !== "object" || value === null || Array.isArray(value)) return { fault: "The settings are an object in JSON, such as {\"stream\": \"ORDERS\"}." };
    return { settings: value as TriggerSettings };
  } catch (e) {
    return { fault: `This is not JSON: ${e instanceof Error ? e.message : String(e)}.` };
  }
}
