// The page: a list of runs, and one run as it happens. Text is always set as text,
// so nothing that a model or a tool said is ever read as HTML.
const main = document.getElementById("main");
let stream = null;

function el(name, attrs = {}, ...children) {
  const e = document.createElement(name);
  for (const [k, v] of Object.entries(attrs)) {
    if (k.startsWith("on")) e.addEventListener(k.slice(2), v);
    else e.setAttribute(k, v);
  }
  e.append(...children.map((c) => c ?? ""));
  return e;
}

async function api(path, body) {
  const r = await fetch(path, body ? { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) } : {});
  const answer = await r.json();
  if (!r.ok) throw new Error(answer.detail || r.statusText);
  return answer;
}

const status = (run) => el("span", { class: "status " + run.status }, run.reason ? `${run.status}: ${run.reason}` : run.status);

async function showRuns() {
  const page = await api("/v1/runs?limit=100");
  const rows = page.items.map((run) =>
    el("tr", {}, el("td", { class: "id" }, el("a", { href: "#" + run.id }, run.id)), el("td", {}, run.agent), el("td", {}, status(run)),
      el("td", {}, String(run.turn_count)), el("td", { class: "soft" }, new Date(run.created_at).toLocaleString())));
  const head = el("tr", {}, ...["Run", "Agent", "Status", "Turns", "Created"].map((t) => el("th", {}, t)));
  main.replaceChildren(el("h2", {}, "Runs"), rows.length ? el("table", {}, head, ...rows) : el("p", { class: "soft" }, "No runs yet: turnpike run AGENT INPUT"));
}

function part(p) {
  if (p.type === "tool_call") return el("pre", {}, `→ ${p.name}(${JSON.stringify(p.arguments)})`);
  if (p.type === "tool_result") return el("pre", {}, (p.is_error ? "✗ " : "← ") + p.content);
  return el("pre", {}, p.text ?? `[${p.type}]`);
}

function waiting(run) {
  if (!run.waiting) return [];
  const send = (signal) => api(`/v1/runs/${run.id}/signals`, signal).catch((e) => alert(e.message));
  const rows = run.waiting.calls.map((c) => {
    const label = el("pre", {}, `${c.tool}(${JSON.stringify(c.arguments)})`);
    if (c.run_id) label.append(" ", el("a", { href: `#${c.run_id}` }, c.run_id));
    if (c.needs !== "approval") return label;
    // What was looked at is what may run: the arguments go along.
    const args = { approve: { arguments: c.arguments }, deny: {} };
    const decide = (decision) => () => send({ approvals: [{ call_id: c.id, decision, ...args[decision] }] });
    return el("div", {}, label, el("button", { onclick: decide("approve") }, "Approve"), el("button", { onclick: decide("deny") }, "Deny"));
  });
  if (run.reason === "waiting_human_input") {
    const ask = () => { const answer = prompt(run.waiting.question ?? "Answer"); if (answer !== null) send({ answer }); };
    rows.push(el("p", {}, run.waiting.question), el("button", { onclick: ask }, "Answer"));
  }
  return [el("h2", {}, "Waits for"), ...rows];
}

async function showRun(id) {
  const [run, messages, turns, below] = await Promise.all([
    api(`/v1/runs/${id}`), api(`/v1/runs/${id}/messages`), api(`/v1/runs/${id}/turns`), api(`/v1/runs?parent=${id}`)]);
  const link = (r) => el("a", { href: `#${r}` }, r);
  const over = ["completed", "incomplete", "failed", "cancelled"].includes(run.status);
  const cancel = el("button", { onclick: () => api(`/v1/runs/${id}/cancel`, { reason: "from the page" }).catch((e) => alert(e.message)) }, "Cancel");
  const head = el("tr", {}, ...["Version", "Turn", "Reason", "Status", "Worker", "ms", "Tools"].map((t) => el("th", {}, t)));
  main.replaceChildren(
    el("h2", {}, run.agent, " ", el("code", {}, run.id)), el("p", {}, status(run), " ", over ? "" : cancel), ...waiting(run),
    ...(run.parent ? [el("p", {}, "started by ", link(run.parent.run_id))] : []),
    ...(below.items.length ? [el("h2", {}, "Runs below"), ...below.items.reverse().map((r) => el("p", {}, link(r.id), ` ${r.agent} `, status(r)))] : []),
    el("h2", {}, "Turns"),
    el("table", {}, head, ...turns.items.map((t) => el("tr", {}, ...[t.version, t.turn, t.reason, t.status, t.worker, t.duration_ms, t.tool_calls.map((c) => c.name).join(", ")].map((v) => el("td", {}, String(v)))))),
    el("h2", {}, "Messages"),
    ...messages.items.map((m) => el("div", { class: "message" }, el("div", { class: "role" }, `${m.role} · turn ${m.turn}`), ...m.parts.map(part))));
  return over;
}

async function route() {
  stream?.close();
  const id = encodeURIComponent(location.hash.slice(1));
  try {
    if (!id) return await showRuns();
    if (await showRun(id)) return;
    stream = new EventSource(`/v1/runs/${id}/events`);
    for (const type of ["model.message", "tool.finished", "transition", "run.waiting", "run.finished"]) {
      stream.addEventListener(type, async () => { if (await showRun(id)) stream.close(); });
    }
  } catch (e) {
    main.replaceChildren(el("p", {}, e.message));
  }
}

addEventListener("hashchange", route);
route();
