// Shortcuts of one letter, which a reader may switch off in this browser.
import { effect, signal } from "@preact/signals";

export const letters = signal(localStorage.getItem("letters") !== "off");

effect(() => {
  if (letters.value) localStorage.removeItem("letters");
  else localStorage.setItem("letters", "off");
});

// shortcut is true of a key that may be one: Escape, arrows and Enter always, a character unless
// they are switched off.
export const shortcut = (e: KeyboardEvent): boolean => !e.ctrlKey && !e.metaKey && !e.altKey && (e.key.length > 1 || letters.peek());

// typing is true of a key that a field or a dialog gets.
export const typing = (e: Event): boolean => {
  const t = e.target as HTMLElement;
  return t.isContentEditable || ["INPUT", "TEXTAREA", "SELECT"].includes(t.tagName) || !!document.querySelector("dialog[open]");
};

// shown is true while the shortcuts are shown.
export const shown = signal(false);

export function openShortcuts(): void {
  shown.value = true;
}
