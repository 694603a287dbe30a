// Ties what is about the same: a bar, a message, an entry of the log. Hovering one marks all.
let tied: Element[] = [];
let current = "";

document.addEventListener("pointerover", (e) => {
  const el = (e.target as Element).closest?.("[data-tie]");
  const key = el?.getAttribute("data-tie") ?? "";
  if (key === current) return;
  current = key;
  for (const t of tied) t.classList.remove("tied");
  tied = key ? [...document.querySelectorAll(`[data-tie="${CSS.escape(key)}"]`)] : [];
  for (const t of tied) t.classList.add("tied");
});
