// One agent: what becomes of its runs, its versions and how they differ, its definition, and
// a place to change it and try the change.
import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import { tenant } from "../../api/client";
import type { AgentVersion } from "../../api/types";
import { sumOf } from "../../lib/spent";
import { Copy } from "../../parts/copy";
import { Dialog } from "../../parts/dialog";
import { diff, folded } from "../../lib/diff";
import { Lines } from "../../parts/lines";
import { Empty, Loading, Problem } from "../../parts/states";
import { Ago } from "../../parts/time";
import { count, money, plural, span } from "../../lib/words";
import { toYAML } from "../../lib/yaml";
import { AgentModel, removeAgent, success } from "../../store/agents";
import { reviews } from "../../store/reviews";
import { go, href, route, setParams } from "../../store/route";
import { may } from "../../store/session";
import { attempt } from "../../store/toasts";
import { Table } from "../site/parts";
import { FigureCells, figureHeads } from "./figures";
import { Invoke } from "./invoke";
import { Review } from "./review";
import { Workbench } from "./workbench";

const tabs: [string, string][] = [
  ["", "Versions"],
  ["definition", "Definition"],
  ["edit", "Edit and try"],
];

export function AgentView({ name }: { name: string }): JSX.Element {
  const of = tenant.value;
  const [model, setModel] = useState<AgentModel | null>(null);
  const [asks, setAsks] = useState(false);
  const [invokes, setInvokes] = useState(false);
  useEffect(() => setModel(new AgentModel(name)), [name, of]);
  useEffect(() => reviews.open(), []);
  const agent = model?.agent.value;
  if (!model || (!agent && !model.error.value)) return <Loading what="the agent" />;
  const draft = reviews.items.value.find((d) => d.name === name);
  const review = draft && <Review key={of} draft={draft} published={agent ?? null} done={() => void model.load()} />;
  // An agent of which nothing was published yet is a draft alone.
  if (!agent && draft && model.error.value?.status === 404)
    return (
      <section class="page-view">
        <div class="view-head">
          <h1>{name}</h1>
          <span class="soft">not published yet</span>
        </div>
        {review}
        <Workbench key={draft.hash} name={name} saved={toYAML(draft.definition)} done={() => void reviews.load()} />
      </section>
    );
  if (!agent && !reviews.loaded.value && !reviews.error.value) return <Loading what="the agent" />;
  if (!agent) return <Problem error={model.error.value!} again={() => void model.load()} />;
  const tab = route.value.params.get("tab") ?? "";
  const about = agent.definition["description"];
  return (
    <section class="page-view">
      <div class="view-head">
        <h1>
          {name}
          <span class="soft">@{agent.version}</span>
        </h1>
        <span class="soft">
          saved <Ago at={agent.created_at} />
        </span>
        <span class="view-acts">
          {may("submitter") && (
            <button type="button" class="primary" onClick={() => setInvokes(true)}>
              Invoke
            </button>
          )}
          <a class="button" href={href("runs", "", { agent: name })}>
            Its runs
          </a>
          <a class="button" href={href("evaluations", "", { agent: name })}>
            Its evaluations
          </a>
          {may("author") && (
            <button type="button" class="quiet" onClick={() => setAsks(true)}>
              Remove
            </button>
          )}
        </span>
      </div>
      {typeof about === "string" && about && <p class="about-long">{about}</p>}
      {review}
      <Figures model={model} />
      <div class="tabs" role="group" aria-label="What is shown of the agent">
        {tabs.map(([key, title]) => (
          <button type="button" key={key} class="quiet" aria-pressed={tab === key} onClick={() => setParams({ tab: key })}>
            {title}
          </button>
        ))}
      </div>
      {tab === "definition" ? (
        <Definition model={model} />
      ) : tab === "edit" ? (
        <Workbench key={name} name={name} saved={toYAML(agent.definition)} done={() => void Promise.all([model.load(), reviews.load()])} />
      ) : (
        <Versions model={model} />
      )}
      {invokes && <Invoke agent={name} close={() => setInvokes(false)} />}
      {asks && (
        <Dialog title={`Remove ${name}?`} close={() => setAsks(false)}>
          <p>No new run can be started with it. Runs that have begun go on to their end, and saving it again brings it back with its versions.</p>
          <div class="buttons">
            <button type="button" onClick={() => setAsks(false)}>
              Keep it
            </button>
            <button
              type="button"
              class="danger"
              onClick={() =>
                void attempt(() => removeAgent(name), `${name} was removed.`).then((ok) => {
                  setAsks(false);
                  if (ok) go(href("agents"));
                })
              }
            >
              Remove
            </button>
          </div>
        </Dialog>
      )}
    </section>
  );
}

// Figures are of the versions that were read, which is all but for agents of many.
function Figures({ model }: { model: AgentModel }): JSX.Element {
  const list = model.versions.value;
  const latest = list[0];
  const all = list.reduce((n, v) => n + v.runs.total, 0);
  const cost = sumOf(list.map((v) => v.runs.cost_usd));
  const rate = latest ? success(latest.runs) : null;
  const took = latest?.runs.duration_ms;
  return (
    <>
      <dl class="figures">
        <div>
          <dt>runs</dt>
          <dd>{count(all)}</dd>
        </div>
        <div>
          <dt>success of version {latest?.version}</dt>
          <dd>{rate === null ? "–" : `${Math.round(rate * 100)} %`}</dd>
        </div>
        <div>
          <dt>half within</dt>
          <dd>{took?.p50 != null ? span(took.p50) : "–"}</dd>
        </div>
        <div>
          <dt>95 % within</dt>
          <dd>{took?.p95 != null ? span(took.p95) : "–"}</dd>
        </div>
        <div>
          <dt>cost</dt>
          <dd>{money(cost) || "–"}</dd>
        </div>
      </dl>
      <p class="soft fine">
        {model.complete.value ? `Of all its ${plural(model.examined.value, "run")} that are kept.` : `Of its newest ${count(model.examined.value)} runs.`} Times are of version {latest?.version}, from
        start to end.
      </p>
    </>
  );
}

function Versions({ model }: { model: AgentModel }): JSX.Element {
  const list = model.versions.value;
  const p = route.value.params;
  const b = Number(p.get("version")) || list[0]?.version || 1;
  const a = Number(p.get("with")) || Math.max(1, b - 1);
  return (
    <div class="versions">
      <Table label="Versions" head={["Version", "Compare", ...figureHeads]}>
        {list.map((v) => (
          <VersionRow key={v.version} v={v} a={a} b={b} />
        ))}
      </Table>
      {model.cursor.value && (
        <button type="button" class="small" onClick={() => void attempt(() => model.more())}>
          Older versions
        </button>
      )}
      {list.length > 1 ? <Difference model={model} a={a} b={b} /> : <p class="soft fine">There is one version. The next one is shown beside it, with what differs.</p>}
    </div>
  );
}

function VersionRow({ v, a, b }: { v: AgentVersion; a: number; b: number }): JSX.Element {
  return (
    <tr data-version={v.version}>
      <th scope="row">
        {v.version} {v.latest && <span class="chip">latest</span>}
      </th>
      <td class="picks">
        <label title={`From version ${v.version}`}>
          <input type="radio" name="from" checked={a === v.version} onChange={() => setParams({ with: String(v.version), version: String(b) }, true)} /> from
          <span class="visually-hidden"> version {v.version}</span>
        </label>
        <label title={`To version ${v.version}`}>
          <input type="radio" name="to" checked={b === v.version} onChange={() => setParams({ version: String(v.version), with: String(a) }, true)} /> to
          <span class="visually-hidden"> version {v.version}</span>
        </label>
      </td>
      <FigureCells stats={v.runs} agent={route.value.id} at={v.created_at} />
    </tr>
  );
}

function useDefinition(model: AgentModel, version: number): string | null {
  useEffect(() => void model.want(version), [model, version]);
  const d = model.definitions.value.get(version);
  return d ? toYAML(d.definition) : null;
}

function Difference({ model, a, b }: { model: AgentModel; a: number; b: number }): JSX.Element {
  const [old, fresh] = [useDefinition(model, a), useDefinition(model, b)];
  if (old === null || fresh === null) return model.error.value ? <Problem error={model.error.value} /> : <Loading what="both definitions" />;
  const lines = folded(diff(old, fresh));
  const changed = lines.filter((l) => l.kind === "old" || l.kind === "new").length;
  return (
    <section aria-label="Difference">
      <h2 class="sub">
        From version {a} to {b}
        <span class="soft"> {changed ? plural(changed, "line") + " differ" : ""}</span>
      </h2>
      {changed ? (
        <Lines lines={lines} />
      ) : (
        <p class="soft fine">{a === b ? "The same version twice: choose another one above." : "They say the same. Saving it again has pinned what its MCP servers list."}</p>
      )}
    </section>
  );
}

function Definition({ model }: { model: AgentModel }): JSX.Element {
  const p = route.value.params;
  const latest = model.agent.value!.version;
  const version = Number(p.get("version")) || latest;
  const json = p.get("as") === "json";
  useEffect(() => void model.want(version), [model, version]);
  const d = model.definitions.value.get(version);
  const text = d ? (json ? JSON.stringify(d.definition, null, 2) + "\n" : toYAML(d.definition)) : "";
  return (
    <section class="definition" aria-label="Definition">
      <div class="tools">
        <label class="inline">
          Version{" "}
          <select value={String(version)} onChange={(e) => setParams({ version: (e.target as HTMLSelectElement).value }, true)}>
            {[...new Set([...model.versions.value.map((v) => v.version), version])].map((v) => (
              <option key={v} value={String(v)}>
                {v}
                {v === latest ? " (latest)" : ""}
              </option>
            ))}
          </select>
        </label>
        <span class="pair" role="group" aria-label="Format">
          <button type="button" class="small quiet" aria-pressed={!json} onClick={() => setParams({ as: "" }, true)}>
            YAML
          </button>
          <button type="button" class="small quiet" aria-pressed={json} onClick={() => setParams({ as: "json" }, true)}>
            JSON
          </button>
        </span>
        <span class="grow" />
        {d && <Copy text={text} label="Copy the definition" />}
      </div>
      {d ? (
        <pre class="source" tabIndex={0}>
          {text}
        </pre>
      ) : model.error.value ? (
        <Empty title="This version is not here">{model.error.value.message}</Empty>
      ) : (
        <Loading what="the definition" />
      )}
    </section>
  );
}
