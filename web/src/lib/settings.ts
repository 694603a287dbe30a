// Settings of a trigger or a hook as a text that people edit.

const added = ["name", "path", "status", "updated_at", "updated_by"] as const;

// settingsOf returns what an author has set: what the gateway adds is not sent back.
export function settingsOf<T extends object>(item: T): Omit<T, (typeof added)[number]> {
  return Object.fromEntries(Object.entries(item).filter(([key]) => !added.some((a) => a === key))) as Omit<T, (typeof added)[number]>;
}

// readSettings reads a text, or says what is wrong with it.
export function readSettings(text: string): { settings: object } | { fault: string } {
  try {
    const value: unknown = JSON.parse(text);
    if (typeof value !== "object" || value === null || Array.isArray(value)) return { fault: 'The settings are an object in JSON, such as {"run": {"agent": "hello"}}.' };
    return { settings: value };
  } catch (e) {
    return { fault: `This is not JSON: ${e instanceof Error ? e.message : String(e)}.` };
  }
}
