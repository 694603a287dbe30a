// The agents of the tenant, with what became of their newest runs.
import type { JSX } from "preact";
import { useEffect } from "preact/hooks";
import type { Agent, RunStats } from "../../api/types";
import { Empty, Loading, Problem } from "../../parts/states";
import { count, plural } from "../../lib/words";
import { agents, examined, examinedAll, followNewest, stats, success } from "../../store/agents";
import { reviews } from "../../store/reviews";
import { href, route } from "../../store/route";
import { may } from "../../store/session";
import { type Column, sorted } from "../../store/sort";
import { AgentView } from "./agent";
import { Table } from "../site/parts";
import { FigureCells, figureHeads } from "./figures";
import { Waiting } from "./review";

export function AgentsView(): JSX.Element {
  const { id } = route.value;
  return id ? <AgentView key={id} name={id} /> : <AgentList />;
}

const figure = (of: (s: RunStats) => number | null | undefined) => (a: Agent) => {
  const s = stats.value.get(a.name);
  return (s && of(s)) ?? null;
};

// The columns that the list is sorted by, in their order.
const columns: Record<string, Column<Agent>> = {
  agent: (a) => a.name,
  runs: figure((s) => s.total),
  success: figure(success),
  troubled: figure((s) => s.troubled),
  half: figure((s) => s.duration_ms.p50),
  most: figure((s) => s.duration_ms.p95),
  cost: figure((s) => s.cost_usd),
  saved: (a) => Date.parse(a.created_at),
};

// The views that belong to agents and have no place in the row at the top.
const places = [
  ["figures", "Figures"],
  ["schedules", "Schedules"],
  ["triggers", "Triggers"],
  ["hooks", "Hooks"],
  ["memory", "Memory"],
  ["evaluations", "Evaluations"],
] as const;

function AgentList(): JSX.Element {
  useEffect(() => agents.open(), []);
  useEffect(() => followNewest(), []);
  useEffect(() => reviews.open(), []);
  const list = sorted(
    agents.items.value.slice().sort((a, b) => a.name.localeCompare(b.name)),
    columns,
  );
  return (
    <section class="page-view">
      <div class="view-head">
        <h1>Agents</h1>
        {agents.loaded.value && <span class="soft">{plural(list.length, "agent")}</span>}
        <span class="grow" />
        {places.map(([view, title]) => (
          <a key={view} class="button" href={href(view)}>
            {title}
          </a>
        ))}
        {may("author") && list.length > 0 && (
          <a class="button" href={href("new-agent")}>
            New agent
          </a>
        )}
      </div>
      {agents.error.value && <Problem error={agents.error.value} again={() => void agents.load()} />}
      <Waiting />
      {!agents.loaded.value && !agents.error.value && <Loading what="agents" />}
      {agents.loaded.value && !list.length && !reviews.items.value.length && (
        <Empty title="No agents yet">
          <p>An agent is a definition: a model, instructions, tools. Save one, and runs can be started with it.</p>
          {may("author") ? (
            <a class="button" href={href("new-agent")}>
              Write the first
            </a>
          ) : (
            <p class="soft">Whoever has the role author may write one.</p>
          )}
          <pre class="command">turnpike init hello && turnpike agents put hello/agents/converter.yaml</pre>
        </Empty>
      )}
      {list.length > 0 && (
        <>
          <Table label="Agents" head={["Agent", ...figureHeads]} sorts={Object.keys(columns)}>
            {list.map((a) => (
              <Row
                key={a.name}
                name={a.name}
                version={a.version}
                about={typeof a.definition["description"] === "string" ? a.definition["description"] : ""}
                at={a.created_at}
                s={stats.value.get(a.name)}
              />
            ))}
          </Table>
          <p class="soft fine">
            Figures are of {examinedAll.value ? "all" : "the newest"} {count(examined.value)} runs of this tenant and change as they go on. Success is the share that completed of those that ended and
            were not cancelled.
          </p>
        </>
      )}
    </section>
  );
}

function Row({ name, version, about, at, s }: { name: string; version: number; about: string; at: string; s: RunStats | undefined }): JSX.Element {
  return (
    <tr data-agent={name}>
      <th scope="row">
        <a href={href("agents", name)}>{name}</a>
        <span class="soft">@{version}</span>
        {about && (
          <div class="soft about" title={about}>
            {about}
          </div>
        )}
      </th>
      <FigureCells stats={s} agent={name} at={at} />
    </tr>
  );
}
