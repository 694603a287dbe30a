// One batch: how far it is, and its runs.
import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import { statuses } from "../../api/types";
import { Empty, Problem } from "../../parts/states";
import { StatusMark } from "../../parts/status";
import { Ago } from "../../parts/time";
import { count, plural, waitsFor, words } from "../../parts/words";
import { go, href, route, runHref } from "../../store/route";
import { batchRuns, recentBatches, rememberBatch } from "../../store/site";
import { Statuses } from "../agents/figures";
import { Listed, Table } from "./parts";

export function BatchesView(): JSX.Element {
  const { id } = route.value;
  return id ? <OneBatch key={id} id={id} /> : <Find />;
}

function Find(): JSX.Element {
  const [id, setId] = useState("");
  return (
    <section class="page-view narrow">
      <div class="view-head">
        <h1>Batches</h1>
      </div>
      <form
        class="find-batch"
        onSubmit={(e) => {
          e.preventDefault();
          if (id.trim()) go(href("batches", id.trim()));
        }}
      >
        <label>
          The id of a batch
          <input class="mono" value={id} placeholder="batch_01…" onInput={(e) => setId((e.target as HTMLInputElement).value)} />
        </label>
        <button type="submit" disabled={!id.trim()}>
          Open
        </button>
      </form>
      {recentBatches.value.length ? (
        <>
          <h2 class="sub">Opened here lately</h2>
          <ul class="plain">
            {recentBatches.value.map((b) => (
              <li key={b}>
                <a class="mono" href={href("batches", b)}>
                  {b}
                </a>
              </li>
            ))}
          </ul>
        </>
      ) : (
        <Empty title="No batch was opened here yet">
          <p>A batch is many runs that are submitted together. Its id is in the answer:</p>
          <pre class="command">turnpike batch run examples/batch.jsonl</pre>
        </Empty>
      )}
    </section>
  );
}

function OneBatch({ id }: { id: string }): JSX.Element {
  useEffect(() => batchRuns.open(), []);
  const page = batchRuns.page.value;
  useEffect(() => {
    if (page) rememberBatch(page.id);
  }, [page?.id]);
  if (batchRuns.error.value && !page) return <Problem error={batchRuns.error.value} again={() => void batchRuns.load()} />;
  const ended = page ? statuses.slice(3).reduce((n, s) => n + (page.counts[s] ?? 0), 0) : 0;
  return (
    <section class="page-view">
      <div class="view-head">
        <h1>Batch</h1>
        <code class="clip">{id}</code>
        {page && (
          <span class="soft">
            submitted <Ago at={page.created_at} />
            {page.max_parallel ? `, ${page.max_parallel} side by side` : ""}
          </span>
        )}
        <span class="grow" />
        <a class="button" href={href("runs", "", { batch: id })}>
          Its runs, live
        </a>
      </div>
      {page && (
        <div class="progress" role="img" aria-label={`${ended} of ${page.total} have ended`}>
          {statuses.map((s) => (page.counts[s] ? <span key={s} class={"s-" + s} style={{ flexGrow: page.counts[s] }} /> : null))}
        </div>
      )}
      {page && (
        <p class="batch-facts">
          <strong>{page.done ? `All ${plural(page.total, "run")} have ended.` : `${count(ended)} of ${plural(page.total, "run")} have ended.`}</strong> <Statuses stats={{ statuses: page.counts }} />
        </p>
      )}
      <Listed list={batchRuns as never} what="the batch" empty={<Empty title="No runs" />}>
        {(items: { index: number; id: string; status: string; reason: string | null }[]) => (
          <Table label="Runs of the batch" head={[["Line", "num"], "Run", "Status"]}>
            {items.map((r) => (
              <tr key={r.id}>
                <td class="num soft">{r.index + 1}</td>
                <th scope="row">
                  <a class="mono" href={runHref(r.id)}>
                    {r.id}
                  </a>
                </th>
                <td class={"s-" + r.status}>
                  <StatusMark status={r.status} /> {r.status}
                  {r.reason && r.reason !== r.status && <span class="soft"> {r.status === "waiting" ? "for " + waitsFor(r.reason) : words(r.reason)}</span>}
                </td>
              </tr>
            ))}
          </Table>
        )}
      </Listed>
    </section>
  );
}
