// Characters that a browser does not show, or that change the order in which it shows others.

// unseen are control and format characters (direction of text, zero width, tags) and those that fonts ignore, except
// line feeds, tabs, and what follows an emoji.
const unseen = /(?![\n\t\ufe0f])[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Default_Ignorable_Code_Point}]/gu;

const hex = (n: number): string => n.toString(16).padStart(4, "0");

// visible shows such characters as ⟦U+202E⟧: whoever decides about a text must read what it says.
export const visible = (text: string): string => text.replace(unseen, (c) => `⟦U+${hex(c.codePointAt(0)!).toUpperCase()}⟧`);

// escaped is the same JSON, with such characters written as \u202e.
export const escaped = (json: string): string => json.replace(unseen, (c) => Array.from({ length: c.length }, (_, i) => "\\u" + hex(c.charCodeAt(i))).join(""));
