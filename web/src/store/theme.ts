// Light or dark: as the system is, or as somebody chose.
import { effect, signal } from "@preact/signals";

export type Theme = "" | "light" | "dark";
export const theme = signal<Theme>((localStorage.getItem("theme") as Theme | null) ?? "");
const systemDark = matchMedia("(prefers-color-scheme: dark)");
const dark = signal(systemDark.matches);
systemDark.addEventListener("change", () => {
  dark.value = systemDark.matches;
});

effect(() => {
  if (theme.value) localStorage.setItem("theme", theme.value);
  else localStorage.removeItem("theme");
  document.documentElement.dataset["theme"] = theme.value || (dark.value ? "dark" : "light");
});

export function toggleTheme(): void {
  const shown = document.documentElement.dataset["theme"];
  const next: Theme = shown === "dark" ? "light" : "dark";
  theme.value = next === (dark.value ? "dark" : "light") ? "" : next;
}
