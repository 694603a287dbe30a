import type { JSX } from "preact";
import { type RunStats, statuses } from "../../api/types";
import { StatusMark } from "../../parts/status";
import { Ago } from "../../parts/time";
import { count, money, span } from "../../lib/words";
import { success } from "../../store/agents";
import { href } from "../../store/route";

// Statuses says how many runs stand where; each number leads to them.
export function Statuses({ stats, of = {} }: { stats: Pick<RunStats, "statuses">; of?: { agent?: string; batch?: string } }): JSX.Element {
  const some = statuses.filter((s) => stats.statuses[s]);
  if (!some.length) return <span class="soft">none</span>;
  return (
    <span class="statuses">
      {some.map((s) => (
        <a key={s} class={"count s-" + s} href={href("runs", "", { ...of, status: s })} title={`${s}: show them`}>
          <StatusMark status={s} /> {count(stats.statuses[s]!)} <span class="soft">{s}</span>
        </a>
      ))}
    </span>
  );
}

// Unknown stands where no cost is known, which is not zero.
const Unknown = (): JSX.Element => (
  <span class="soft" title="No run has a known cost">
    –
  </span>
);

// What is said of the runs of an agent, and of a version of it.
export const figureHeads: (string | [string, "num"])[] = [
  "Runs by status",
  ["Success", "num"],
  ["With failures", "num"],
  ["half within", "num"],
  ["95 % within", "num"],
  ["Cost", "num"],
  ["Saved", "num"],
];

export function FigureCells({ stats, agent, at }: { stats: RunStats | undefined; agent: string; at: string }): JSX.Element {
  const rate = stats ? success(stats) : null;
  return (
    <>
      <td>{stats ? <Statuses stats={stats} of={{ agent }} /> : <span class="soft">none lately</span>}</td>
      <td class="num">{rate === null ? "" : `${Math.round(rate * 100)} %`}</td>
      <td class="num">
        {stats?.troubled ? (
          <a
            class="troubled"
            href={href("runs", "", { agent, trouble: "true" })}
            title="runs in which a tool call or a hook failed, a model call was repeated, or an attempt was lost, whatever their end"
          >
            ⚠ {count(stats.troubled)}
          </a>
        ) : (
          ""
        )}
      </td>
      <td class="num">{stats?.duration_ms.p50 != null ? span(stats.duration_ms.p50) : ""}</td>
      <td class="num">{stats?.duration_ms.p95 != null ? span(stats.duration_ms.p95) : ""}</td>
      <td class="num">{stats ? money(stats.cost_usd) || <Unknown /> : ""}</td>
      <td class="num soft">
        <Ago at={at} />
      </td>
    </>
  );
}
