// Characters that a browser does not show, or that change the order in which it shows others.

// joining are the scripts whose letters a joiner or non-joiner gives another form.
const joining = ["Arab", "Syrc", "Deva", "Beng", "Guru", "Gujr", "Orya", "Taml", "Telu", "Knda", "Mlym", "Sinh", "Khmr", "Mymr"];
const letter = `(?:(?=[\\p{L}\\p{M}])[${joining.map((s) => `\\p{scx=${s}}`).join("")}])`;
const emoji = "[\\p{Extended_Pictographic}\\p{Emoji_Modifier}]";
const kept = ["[\\n\\t]|\\r\\n", "(?<=\\p{Emoji})[\\ufe0e\\ufe0f]", `(?<=${emoji}\\ufe0f?)\\u200d(?=${emoji})`, `(?<=${letter})[\\u200c\\u200d](?=${letter})`].join("|");

// unseen are control and format characters (direction of text, zero width, tags) and those that fonts ignore, except
// line ends, tabs, and what changes how its neighbours look: the style of an emoji, and what joins emoji or letters.
const unseen = new RegExp(`(?!${kept})[\\p{Cc}\\p{Cf}\\p{Zl}\\p{Zp}\\p{Default_Ignorable_Code_Point}]`, "gu");

const hex = (n: number): string => n.toString(16).padStart(4, "0");

// visible shows such characters as ⟦U+202E⟧: whoever decides about a text must read what it says.
export const visible = (text: string): string => text.replace(unseen, (c) => `⟦U+${hex(c.codePointAt(0)!).toUpperCase()}⟧`);

// escaped is the same JSON, with such characters written as \u202e.
export const escaped = (json: string): string => json.replace(unseen, (c) => Array.from({ length: c.length }, (_, i) => "\\u" + hex(c.charCodeAt(i))).join(""));

// show makes them visible in what Preact draws: in a piece of text, and in what an element says of itself.
export function show(node: { type: unknown; props: unknown }): void {
  if (node.type === null && typeof node.props === "string") node.props = visible(node.props);
  if (typeof node.type !== "string") return;
  const props = node.props as Record<string, unknown>;
  for (const name of ["title", "aria-label"]) {
    const said = props[name];
    if (typeof said === "string") props[name] = visible(said);
  }
}
