// The batches, and one of them: how far it is, and its runs.
import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import { type BatchSummary, type Run, statuses } from "../../api/types";
import { errorOf } from "../../api/client";
import { Fold } from "../../parts/fold";
import { Empty, Problem } from "../../parts/states";
import { StatusMark } from "../../parts/status";
import { Ago } from "../../parts/time";
import { count, gist, plural, shortId, troubles } from "../../lib/words";
import { now } from "../../store/clock";
import { href, route, runHref } from "../../store/route";
import { batchAnswers, batches, batchRuns, inputOf } from "../../store/site";
import { type Column, sorted } from "../../store/sort";
import { Statuses } from "../agents/figures";
import { Listed, Table } from "./parts";

export function BatchesView(): JSX.Element {
  const { id } = route.value;
  return id ? <OneBatch key={id} id={id} /> : <All />;
}

function All(): JSX.Element {
  useEffect(() => batches.open(), []);
  return (
    <section class="page-view">
      <div class="view-head">
        <h1>Batches</h1>
      </div>
      <Listed
        list={batches}
        what="batches"
        empty={
          <Empty title="No batch yet">
            <p>A batch is many runs that are submitted together, one input a line:</p>
            <pre class="command">printf 'Tea.\nCoffee.\n' | turnpike batch AGENT -</pre>
          </Empty>
        }
      >
        {(items) => (
          <Table label="Batches" head={["Batch", ["Runs", "num"], "Runs by status", ["Submitted", "num"]]} sorts={["batch", "runs", "", "submitted"]}>
            {sorted(items, columns).map((b) => (
              <tr key={b.id} data-batch={b.id}>
                <th scope="row">
                  <a class="mono" href={href("batches", b.id)} title={b.id}>
                    {shortId(b.id)}
                  </a>
                </th>
                <td class="num">{count(b.total)}</td>
                <td>
                  <Statuses stats={{ statuses: b.counts }} of={{ batch: b.id }} />
                </td>
                <td class="num soft">
                  <Ago at={b.created_at} />
                </td>
              </tr>
            ))}
          </Table>
        )}
      </Listed>
    </section>
  );
}

interface Line {
  index: number;
  id: string;
  status: string;
}

const columns: Record<string, Column<BatchSummary>> = { batch: (b) => b.id, runs: (b) => b.total, submitted: (b) => Date.parse(b.created_at) };
const lineColumns: Record<string, Column<Line>> = { line: (r) => r.index, run: (r) => r.id, status: (r) => r.status };

// Answer is what matters about a run: its answer, its error or what it waits for.
function Answer({ run }: { run: Run }): JSX.Element {
  const g = gist(run, run.status === "waiting" ? now.value : Date.now());
  const wrong = troubles(run);
  return (
    <>
      {wrong.length > 0 && (
        <span class="row-trouble">
          <span aria-hidden="true">⚠ </span>
          {wrong.join(" · ")}
        </span>
      )}
      {g.lead && <strong>{g.lead}: </strong>}
      {g.text}
    </>
  );
}

// Input reads the input of a run when somebody asks for it.
function Input({ id }: { id: string }): JSX.Element {
  const [text, setText] = useState("Reading…");
  useEffect(() => void inputOf(id).then(setText, (e: unknown) => setText(errorOf(e).message)), [id]);
  return <pre class="batch-input">{text}</pre>;
}

function OneBatch({ id }: { id: string }): JSX.Element {
  useEffect(() => batchRuns.open(), []);
  useEffect(() => batchAnswers.open(), []);
  const runs = new Map(batchAnswers.items.value.map((r) => [r.id, r]));
  const page = batchRuns.page.value;
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
          <strong>{page.done ? `All ${plural(page.total, "run")} have ended.` : `${count(ended)} of ${plural(page.total, "run")} have ended.`}</strong>{" "}
          <Statuses stats={{ statuses: page.counts }} of={{ batch: id }} />
        </p>
      )}
      <Listed list={batchRuns as never} what="the batch" empty={<Empty title="No runs" />}>
        {(items: Line[]) => (
          <Table label="Runs of the batch" head={[["Line", "num"], "Run", "Status", "Answer or error", "Input"]} sorts={["line", "run", "status"]}>
            {sorted(items, lineColumns).map((r) => (
              <tr key={r.id}>
                <td class="num soft">{r.index + 1}</td>
                <th scope="row">
                  <a class="mono" href={runHref(r.id)} title={r.id}>
                    {shortId(r.id)}
                  </a>
                </th>
                <td class={"s-" + r.status}>
                  <StatusMark status={r.status} /> {r.status}
                </td>
                <td class="batch-gist">{runs.has(r.id) && <Answer run={runs.get(r.id)!} />}</td>
                <td>
                  <Fold summary="Show">{() => <Input id={r.id} />}</Fold>
                </td>
              </tr>
            ))}
          </Table>
        )}
      </Listed>
    </section>
  );
}
