// Figures over time: runs, failures, latency, tokens and cost of each agent, model or tenant.
import type { JSX } from "preact";
import { useEffect, useMemo } from "preact/hooks";
import { Empty } from "../../parts/states";
import { count, money, plural, span as length, words } from "../../lib/words";
import { bucketsOf, type Kind, layers, line, noneName, otherName, place, quantile, ranges, seriesOf, type Series, type Span, type StatsRow } from "../../lib/figures";
import { by, figures, mayTenants, range, shown } from "../../store/figures";
import { href, route, setParams } from "../../store/route";
import { type Column, sorted } from "../../store/sort";
import { Listed, Table } from "../site/parts";
import { Chart, type Drawn } from "./chart";

const names = { "24h": "24 hours", "7d": "7 days", "90d": "90 days" };
const groups = { agent: "Agents", model: "Models", tenant: "Tenants" };
const most = 6; // layers of a chart
const none: number[] = [];

export function FiguresView(): JSX.Element {
  useEffect(() => figures.open(), []);
  const [now, group] = [range(), by()];
  const of = route.value.params.get("of") ?? "";
  return (
    <section class="page-view">
      <div class="view-head">
        <h1>Figures</h1>
        <div class="tabs" role="group" aria-label="Time">
          {ranges.map((r) => (
            <button type="button" key={r} class="quiet" aria-pressed={r === now} onClick={() => setParams({ range: r === "24h" ? "" : r })}>
              {names[r]}
            </button>
          ))}
        </div>
        <span class="grow" />
        <div class="tabs" role="group" aria-label="Series">
          {(Object.keys(groups) as (keyof typeof groups)[])
            .filter((g) => g !== "tenant" || mayTenants())
            .map((g) => (
              <button type="button" key={g} class="quiet" aria-pressed={g === group} onClick={() => setParams({ by: g === "agent" ? "" : g, of: "" })}>
                {groups[g]}
              </button>
            ))}
        </div>
      </div>
      <Listed
        list={figures}
        what="figures"
        empty={
          <Empty title={`No run has ended in ${names[now]}`}>
            <p class="soft">A run counts in the hour of its end. Figures stay for 90 days, also when runs are deleted.</p>
          </Empty>
        }
      >
        {(items) => <Charts key={now + group} rows={items} of={of} span={shown()} />}
      </Listed>
    </section>
  );
}

function Charts({ rows, of, span }: { rows: StatsRow[]; of: string; span: Span }): JSX.Element {
  const [every, own] = useMemo(() => {
    const every = place(rows, span);
    return [every, of ? place(rows, span, of) : every];
  }, [rows, span.from, of]);
  const all = useMemo(() => seriesOf(every, span.count), [every]);
  const bounds = figures.page.value?.bounds_ms ?? none;
  const stacks = useMemo(() => {
    const stack = (what: Parameters<typeof layers>[2]): Drawn[] => layers(own, span.count, what, most);
    return {
      runs: stack((r, add) => add(r.name, r.runs)),
      ends: stack((r, add) => {
        for (const reason in r.reasons) if (reason !== "completed") add(words(reason), r.reasons[reason]!);
      }),
      tokens: stack((r, add) => {
        add("input", r.input_tokens);
        add("output", r.output_tokens);
      }),
      cost: stack((r, add) => add(r.name, r.cost_usd)),
    };
  }, [own]);
  const latency = useMemo(() => {
    const of = (kind: Kind): Drawn[] => {
      const buckets = bucketsOf(own, span.count, kind);
      return (
        [
          ["half within", 0.5],
          ["95 % within", 0.95],
        ] as const
      ).map(([name, share]) => ({ name, values: buckets.map((b) => quantile(bounds, b, share)) }));
    };
    return { queue: of("queue"), model: of("model"), tool: of("tool") };
  }, [own, bounds]);

  // The list of runs selects by agent, status and the time of submission; by nothing else of these.
  const group = by();
  const linked = of ? group === "agent" && of !== otherName && of !== noneName : group !== "tenant";
  const link = (status: string) =>
    linked
      ? (at: number) =>
          href("runs", "", { ...(of ? { agent: of } : {}), status, since: new Date(span.from + at * span.every).toISOString(), until: new Date(span.from + (at + 1) * span.every).toISOString() })
      : undefined;
  const ended = link("completed,incomplete,failed,cancelled");
  const sum = (value: (s: Series) => number): number => all.filter((s) => !of || s.name === of).reduce((n, s) => n + value(s), 0);
  const small = (n: number): string => (n >= 1e6 ? `${+(n / 1e6).toFixed(1)} M` : n >= 1e4 ? `${+(n / 1000).toFixed(1)} k` : count(+n.toFixed(1)));
  const expired = sum((s) => s.expired);
  return (
    <>
      <p class="figures-sum">
        {of && (
          <button type="button" class="chip on" onClick={() => setParams({ of: "" })} aria-label={`Show all, not only ${of}`}>
            {of} ✕
          </button>
        )}
        <span>
          {plural(
            sum((s) => s.runs),
            "run",
          )}{" "}
          ended, {count(sum((s) => s.failed))} failed · {small(sum((s) => s.tokens))} tokens · {money(sum((s) => s.cost))}
          {expired > 0 && `, ${money(expired)} of it to send again what the prompt cache had dropped`}
        </span>
      </p>
      <div class="charts">
        <Chart title="Runs" span={span} list={stacks.runs} format={small} link={ended} />
        <Chart title="Not completed" hint="by the reason of the end" span={span} list={stacks.ends} format={small} link={link("incomplete,failed,cancelled")} />
        <Chart title="Time in the queue" lines span={span} list={latency.queue} format={length} link={ended} />
        <Chart title="Model calls" lines span={span} list={latency.model} format={length} link={ended} />
        <Chart title="Tool calls" lines span={span} list={latency.tool} format={length} link={ended} />
        <Chart title="Tokens" span={span} list={stacks.tokens} format={small} link={ended} />
        <Chart title="Cost" span={span} list={stacks.cost} format={money} link={ended} />
      </div>
      <div class="series">
        <SeriesTable all={all} bounds={bounds} of={of} span={span} />
      </div>
      <p class="soft fine">
        A run counts in the hour of its end; a step of a chart leads to the runs that were submitted in it. Percentiles are upper bounds. Days are those of UTC. Deleted runs count.
      </p>
    </>
  );
}

const columns = (bounds: number[]): Record<string, Column<Series>> => ({
  name: (s) => s.name,
  runs: (s) => s.runs,
  failed: (s) => s.failed,
  tokens: (s) => s.tokens,
  cost: (s) => s.cost,
  model: (s) => quantile(bounds, s.model, 0.95),
});

function SeriesTable({ all, bounds, of, span }: { all: Series[]; bounds: number[]; of: string; span: Span }): JSX.Element {
  const title = groups[by()];
  const sort = route.value.params.get("sort") ?? "";
  return useMemo(
    () => (
      <Table
        label={title}
        head={[title, "Over time", ["Runs", "num"], ["Failed", "num"], ["Tokens", "num"], ["Cost", "num"], ["Model, 95 % within", "num"]]}
        sorts={["name", "", "runs", "failed", "tokens", "cost", "model"]}
      >
        {sorted(all, columns(bounds)).map((s) => {
          const ms = quantile(bounds, s.model, 0.95);
          return (
            <tr key={s.name} data-series={s.name} class={s.name === of ? "here" : ""}>
              <th scope="row">
                <a
                  href={href("figures", "", selecting(s.name === of ? "" : s.name))}
                  aria-current={s.name === of ? "true" : undefined}
                  title={s.name === of ? "Show all" : "Show only this in the charts"}
                >
                  {s.name}
                </a>
              </th>
              <td>
                <svg class="spark" viewBox={`0 0 ${span.count} 20`} preserveAspectRatio="none" aria-hidden="true">
                  <path d={line(s.values, Math.max(1, ...s.values), 20)} class="c-line c-0" />
                </svg>
              </td>
              <td class="num">{count(s.runs)}</td>
              <td class={"num" + (s.failed ? " error-text" : "")}>{s.failed ? `⚠ ${count(s.failed)}` : ""}</td>
              <td class="num">{count(s.tokens)}</td>
              <td class="num" title={s.expired ? `${money(s.expired)} of it to send again what the prompt cache had dropped` : undefined}>
                {money(s.cost)}
              </td>
              <td class="num">{ms === null ? "" : length(ms)}</td>
            </tr>
          );
        })}
      </Table>
    ),
    [all, bounds, of, sort, title, span.from],
  );
}

// selecting are the parameters of this view, of one series.
function selecting(of: string): URLSearchParams {
  const p = new URLSearchParams(route.value.params);
  if (of) p.set("of", of);
  else p.delete("of");
  return p;
}
