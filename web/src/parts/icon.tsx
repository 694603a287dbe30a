import type { JSX } from "preact";

// Drawn here, as fonts lack many signs.
const paths = {
  copy: "M5.5 5.5h7v7h-7z M3.5 10.5v-7h7",
  fork: "M4.5 2.5v4a2 2 0 0 0 2 2h3a2 2 0 0 1 2 2v3 M4.5 6.5v7 M2.7 4.3l1.8-1.8 1.8 1.8",
  search: "M7 2.5a4.5 4.5 0 1 1 0 9 4.5 4.5 0 0 1 0-9z M10.3 10.3l3.2 3.2",
  theme: "M8 2.5a5.5 5.5 0 1 1 0 11z M8 2.5a5.5 5.5 0 0 0 0 11",
  check: "M3 8.5l3.2 3.2L13 4.8",
};

export function Icon({ name }: { name: keyof typeof paths }): JSX.Element {
  return (
    <svg class="icon" viewBox="0 0 16 16" width="16" height="16" aria-hidden="true">
      <path d={paths[name]} fill="none" stroke="currentColor" stroke-width="1.4" stroke-linejoin="round" stroke-linecap="round" />
    </svg>
  );
}
