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

// The tenant that this tab is about, for those who have roles in several.
const tenant = () => sessionStorage.getItem("tenant") ?? "";

async function api(path, body) {
  const headers = tenant() ? { "Turnpike-Tenant": tenant() } : {};
  const r = await fetch(path, body ? { method: "POST", headers: { ...headers, "Content-Type": "application/json" }, body: JSON.stringify(body) } : { headers });
  const answer = await r.json();
  if (!r.ok) throw Object.assign(new Error(answer.detail || r.statusText), { status: r.status });
  return answer;
}

// Whoever has logged in has a session in a cookie that no script can read.
async function showLogin(session, problem = "") {
  const key = el("input", { type: "password", name: "key", autocomplete: "off", placeholder: "tp_…", "aria-label": "API key" });
  const exchange = async (e) => {
    e.preventDefault();
    try {
      await api("/v1/session", { key: key.value });
      await route();
    } catch (e) {
      await showLogin(session, e.message);
    }
  };
  const back = encodeURIComponent(location.pathname + location.hash);
  main.replaceChildren(el("h2", {}, "Log in"), el("p", {}, problem),
    window.isSecureContext ? "" : el("p", {}, "Browsers keep a session over https only, or on localhost: open this page there."),
    session.ways.includes("key") ? el("form", { onsubmit: exchange }, key, " ", el("button", {}, "Log in with an API key")) : "",
    session.ways.includes("oidc") ? el("p", {}, el("a", { href: "/auth/login?return=" + back }, "Log in through your organization")) : "");
}

function showWho(session) {
  const out = async () => { await fetch("/v1/session", { method: "DELETE" }); sessionStorage.clear(); await route(); };
  const choose = (e) => { sessionStorage.setItem("tenant", e.target.value.trim()); route(); };
  const any = session.tenants.includes("*");
  const options = ["", ...session.tenants].map((t) => el("option", { value: t, ...(t === tenant() ? { selected: "" } : {}) }, t || "tenant…"));
  const choice = any ? el("input", { onchange: choose, value: tenant(), placeholder: "tenant", "aria-label": "Tenant" })
    : session.tenants.length > 1 ? el("select", { onchange: choose, "aria-label": "Tenant" }, ...options) : "";
  document.getElementById("who").replaceChildren(...(session.principal ? [choice, " ", session.principal, " ", el("button", { onclick: out }, "Log out")] : []));
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
  let session;
  try {
    session = await api("/v1/session");
    showWho(session);
    if (session.ways.length && !session.principal) return await showLogin(session);
    if (!id) return await showRuns();
    if (await showRun(id)) return;
    stream = new EventSource(`/v1/runs/${id}/events${tenant() ? "?tenant=" + encodeURIComponent(tenant()) : ""}`);
    for (const type of ["model.message", "tool.finished", "transition", "run.waiting", "run.finished"]) {
      stream.addEventListener(type, async () => { if (await showRun(id)) stream.close(); });
    }
  } catch (e) {
    if (e.status === 401) return showLogin(session, e.message);
    main.replaceChildren(el("p", {}, e.message));
  }
}

addEventListener("hashchange", route);
route();
