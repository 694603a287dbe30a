import type { JSX } from "preact";
import { type RunStats, statuses } from "../../api/types";
import { StatusMark } from "../../parts/status";
import { count } from "../../parts/words";
import { href } from "../../store/route";

// Statuses says how many runs stand where; each number leads to them.
export function Statuses({ stats, agent }: { stats: Pick<RunStats, "statuses">; agent?: string }): JSX.Element {
  const some = statuses.filter((s) => stats.statuses[s]);
  if (!some.length) return <span class="soft">none</span>;
  return (
    <span class="statuses">
      {some.map((s) => (
        <a key={s} class={"count s-" + s} href={href("runs", "", { ...(agent ? { agent } : {}), status: s })} title={`${s}: show them`}>
          <StatusMark status={s} /> {count(stats.statuses[s]!)} <span class="soft">{s}</span>
        </a>
      ))}
    </span>
  );
}
