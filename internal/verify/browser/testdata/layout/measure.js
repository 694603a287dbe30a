// measure returns where the landmarks of the page are, and what is wrong with the layout.
// The test evaluates it in the page. Without whole it looks for no faults.
((landmarks, whole) => {
  const near = 2; // pixels that two texts may share
  const faults = [];
  const round = (r) => [r.left, r.top + scrollY, r.width, r.height].map(Math.round);
  const says = (e) => (e.getAttribute?.("aria-label") || e.textContent || "").trim().replace(/\s+/g, " ").slice(0, 40);
  const name = (e) => e.tagName.toLowerCase() + [...e.classList].map((c) => "." + c).join("") + ` "${says(e)}"`;
  const seen = (e) => e.checkVisibility({ visibilityProperty: true, opacityProperty: true, contentVisibilityAuto: true }) && !e.closest(".visually-hidden, .skip") && getComputedStyle(e).clipPath !== "inset(50%)";
  // layer is what an element moves with: what stands above the rest may cover it.
  const layer = (e) => {
    for (let p = e; p; p = p.parentElement) if (["fixed", "sticky"].includes(getComputedStyle(p).position) || p.tagName === "DIALOG") return p;
    return document.body;
  };
  const modal = document.querySelector("dialog[open]");
  const scope = modal ?? document.getElementById("app");

  const boxes = [];
  for (const l of landmarks) {
    [...document.querySelectorAll(l)].filter(seen).slice(0, 6).forEach((e, i) => {
      const r = e.getBoundingClientRect();
      if (r.width && r.height) boxes.push({ name: `${l}${i ? " " + (i + 1) : ""}`, says: says(e).slice(0, 24), box: round(r) });
    });
  }

  const busy = !!document.querySelector(".skeleton");
  if (!whole) return JSON.stringify({ boxes, faults, busy });

  if (document.documentElement.scrollWidth > innerWidth) faults.push(`the page scrolls sideways: it is ${document.documentElement.scrollWidth} wide`);

  // clip is the part of a rectangle that no ancestor cuts off, and whether one scrolls.
  const clip = (e, r) => {
    let [l, t, w, b] = [r.left, r.top, r.right, r.bottom];
    let scrolls = false;
    for (let p = e; p && p !== document.body; p = p.parentElement) {
      const s = getComputedStyle(p);
      if (s.overflowX !== "visible" || s.overflowY !== "visible") {
        const c = p.getBoundingClientRect();
        [l, t, w, b] = [Math.max(l, c.left), Math.max(t, c.top), Math.min(w, c.right), Math.min(b, c.bottom)];
        scrolls ||= ["auto", "scroll"].includes(s.overflowX) || ["auto", "scroll"].includes(s.overflowY);
      }
      if (s.position === "fixed") break;
    }
    return { l, t, r: w, b, scrolls };
  };

  const texts = [];
  for (const e of scope.querySelectorAll("*")) {
    if (!seen(e) || e.closest("svg, option, .editor-host")) continue;
    const style = getComputedStyle(e);
    const own = [...e.childNodes].filter((n) => n.nodeType === 3 && n.textContent.trim());
    const r = e.getBoundingClientRect();
    if (!r.width || !r.height) continue;
    const c = clip(e, r);
    if ((r.right > innerWidth + 1 || r.left < -1) && !c.scrolls && c.r - c.l > 0 && (c.r > innerWidth + 1 || c.l < -1)) faults.push(`${name(e)} stands outside of the window: ${round(r)}`);
    const hides = style.overflowX === "hidden" || style.overflowX === "clip";
    if (own.length && hides && e.scrollWidth > e.clientWidth + 1) {
      if (style.textOverflow !== "ellipsis") faults.push(`${name(e)} is cut off: ${e.scrollWidth} in ${e.clientWidth}`);
      else if (e.clientWidth < 40) faults.push(`${name(e)} has ${e.clientWidth} pixels for a text of ${e.scrollWidth}`);
    }
    if (own.length && (style.overflowY === "hidden" || style.overflowY === "clip") && style.webkitLineClamp === "none" && e.scrollHeight > e.clientHeight + 4) faults.push(`${name(e)} is cut off below: ${e.scrollHeight} in ${e.clientHeight}`);
    if (e.tagName === "INPUT" && e.placeholder && !e.value && ["text", "search", ""].includes(e.getAttribute("type") ?? "")) {
      const ctx = document.createElement("canvas").getContext("2d");
      ctx.font = style.font;
      const room = e.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight);
      if (ctx.measureText(e.placeholder).width > room + 1) faults.push(`the placeholder "${e.placeholder}" is cut off: it has ${Math.round(room)}`);
    }
    for (const n of own) {
      const range = document.createRange();
      range.selectNodeContents(n);
      for (const q of range.getClientRects()) {
        const k = clip(e, q);
        if (k.r - k.l > near && k.b - k.t > near) texts.push({ e, ...k });
      }
    }
  }
  texts.sort((a, b) => a.t - b.t);
  const told = new Set();
  for (let i = 0; i < texts.length; i++) {
    const a = texts[i];
    for (let j = i + 1; j < texts.length && texts[j].t < a.b - near; j++) {
      const b = texts[j];
      if (a.e === b.e || Math.min(a.r, b.r) - Math.max(a.l, b.l) <= near || Math.min(a.b, b.b) - b.t <= near + 3) continue;
      if (layer(a.e) !== layer(b.e)) continue;
      const text = `${name(a.e)} and ${name(b.e)} overlap`;
      if (!told.has(text)) faults.push(text);
      told.add(text);
    }
  }
  return JSON.stringify({ boxes, faults, busy });
})
