// The evaluations of agents, and one of them: how its versions compare, and what each case came to.
import type { JSX } from "preact";
import { useEffect, useMemo, useState } from "preact/hooks";
import { tenant } from "../../api/client";
import type { Evaluation, EvaluationResult, EvaluationSummary, EvaluationVersion } from "../../api/types";
import { type Case, casesOf, passed, verdict } from "../../lib/evaluation";
import { Dialog } from "../../parts/dialog";
import { Fold } from "../../parts/fold";
import { Empty, Loading, Problem } from "../../parts/states";
import { StatusMark } from "../../parts/status";
import { Ago } from "../../parts/time";
import { count, money, plural, shortId, span } from "../../lib/words";
import { closeEvaluation, deleteEvaluation, evaluatedAgent, evaluation, evaluationError, evaluations, readEvaluation } from "../../store/evaluations";
import { go, href, route, runHref, setParams } from "../../store/route";
import { may, ready } from "../../store/session";
import { type Column, sorted } from "../../store/sort";
import { attempt } from "../../store/toasts";
import { Listed, Table } from "./parts";

export function EvaluationsView(): JSX.Element {
  const { id } = route.value;
  return id ? <One key={id + "\n" + tenant.value} id={id} /> : <All />;
}

const agentOf = (version: string): string => version.slice(0, version.lastIndexOf("@"));
const costOf = (e: EvaluationSummary): number => e.versions.reduce((n, v) => n + v.cost_usd, e.judge_cost_usd);
const share = (v: EvaluationVersion | undefined): number | null => (v?.runs ? v.passed / v.runs : null);

const columns: Record<string, Column<EvaluationSummary>> = {
  evaluation: (e) => e.file ?? e.id,
  version: (e) => share(e.versions[0]),
  other: (e) => share(e.versions[1]),
  cases: (e) => e.cases,
  cost: costOf,
  stored: (e) => Date.parse(e.updated_at),
};

function All(): JSX.Element {
  useEffect(() => evaluations.open(), []);
  const agent = evaluatedAgent.value;
  return (
    <section class="page-view">
      <div class="view-head">
        <h1>Evaluations{agent && ` of ${agent}`}</h1>
        <span class="grow" />
        {agent && (
          <a class="button" href={href("evaluations")}>
            All agents
          </a>
        )}
      </div>
      <Listed
        list={evaluations}
        what="evaluations"
        empty={
          <Empty title={agent ? `No evaluation of ${agent} yet` : "No evaluation yet"}>
            <p>An evaluation runs a file of cases against one or two versions of an agent. The command stores its report, and this page shows it:</p>
            <pre class="command">turnpike eval cases.yaml --agent {agent || "AGENT"}</pre>
          </Empty>
        }
      >
        {(items) => (
          <Table label="Evaluations" head={["Evaluation", "Version", "Compared with", ["Cases", "num"], ["Cost", "num"], ["Stored", "num"]]} sorts={Object.keys(columns)}>
            {sorted(items, columns).map((e) => (
              <Row key={e.id} e={e} />
            ))}
          </Table>
        )}
      </Listed>
    </section>
  );
}

function Row({ e }: { e: EvaluationSummary }): JSX.Element {
  const [first, second] = e.versions;
  const difference = e.differences?.find((d) => d.figure === "passed");
  return (
    <tr data-evaluation={e.id}>
      <th scope="row">
        <a href={href("evaluations", e.id)} title={e.id}>
          {e.file ?? shortId(e.id)}
        </a>
      </th>
      <td>{first && <Passes v={first} />}</td>
      <td>
        {second && <Passes v={second} />}
        {difference && <Mark kind={verdict(difference, first!.version).kind} text={verdict(difference, first!.version).text} />}
      </td>
      <td class="num">
        {count(e.cases)}
        {e.repeat > 1 && <span class="soft"> × {count(e.repeat)}</span>}
      </td>
      <td class="num">{money(costOf(e))}</td>
      <td class="num soft" title={`by ${e.updated_by}`}>
        <Ago at={e.updated_at} />
      </td>
    </tr>
  );
}

function Passes({ v }: { v: EvaluationVersion }): JSX.Element {
  return (
    <>
      {v.version}{" "}
      <span class="soft">
        {count(v.passed)} of {count(v.runs)} passed
      </span>
    </>
  );
}

const colours = { better: "s-completed", worse: "s-failed", chance: "", same: "" };

function Mark({ kind, text }: { kind: keyof typeof colours; text: string }): JSX.Element {
  return kind === "same" ? <span class="soft"> {text}</span> : <span class={"chip " + colours[kind]}>{text}</span>;
}

function One({ id }: { id: string }): JSX.Element {
  useEffect(() => {
    if (ready.value) void readEvaluation(id);
    return closeEvaluation;
  }, [id, ready.value]);
  const e = evaluation.value;
  const error = evaluationError.value;
  if (!e) return error ? <Problem error={error} again={() => void readEvaluation(id)} /> : <Loading what="the evaluation" />;
  return <Report e={e} />;
}

function Report({ e }: { e: Evaluation }): JSX.Element {
  const [asks, setAsks] = useState(false);
  const versions = e.versions.map((v) => v.version);
  const cases = useMemo(() => casesOf(e.results, versions), [e]);
  return (
    <section class="page-view">
      <div class="view-head">
        <h1>{e.file ?? "Evaluation"}</h1>
        <code class="clip">{e.id}</code>
        <span class="soft">
          {plural(cases.length, "case")}, {plural(e.repeat, "run")} each, stored <Ago at={e.updated_at} /> by {e.updated_by}
        </span>
        <span class="view-acts">
          <a class="button" href={href("runs", "", { "metadata.eval": e.id })}>
            Its runs
          </a>
          {may("author") && (
            <button type="button" class="quiet" onClick={() => setAsks(true)}>
              Delete
            </button>
          )}
        </span>
      </div>
      <Figures e={e} />
      <Cases e={e} cases={cases} versions={versions} />
      {asks && (
        <Dialog title="Delete this evaluation?" close={() => setAsks(false)}>
          <p>Its table is gone for all who may read it. Its runs stay.</p>
          <div class="buttons">
            <button type="button" onClick={() => setAsks(false)}>
              Keep it
            </button>
            <button
              type="button"
              class="danger"
              onClick={() =>
                void attempt(() => deleteEvaluation(e.id), "The evaluation is deleted.").then((ok) => {
                  setAsks(false);
                  if (ok) go(href("evaluations"));
                })
              }
            >
              Delete
            </button>
          </div>
        </Dialog>
      )}
    </section>
  );
}

// figures are the rows of the table: the figure of a version, and one of the mean of a run.
const figures: { key: string; title: string; of: (v: EvaluationVersion) => string; mean: (n: number) => string }[] = [
  { key: "passed", title: "Runs that passed", of: (v) => `${count(v.passed)} of ${count(v.runs)}`, mean: (n) => `${Math.round(n * 100)} %` },
  { key: "cost_usd", title: "Cost of all runs", of: (v) => money(v.cost_usd), mean: money },
  { key: "tokens", title: "Tokens of a run", of: (v) => count(Math.round(v.tokens)), mean: (n) => count(Math.round(n)) },
  { key: "turns", title: "Turns of a run", of: (v) => v.turns.toFixed(1), mean: (n) => n.toFixed(1) },
  { key: "seconds", title: "Median time", of: (v) => span(v.seconds * 1000), mean: (n) => span(n * 1000) },
];

function Figures({ e }: { e: Evaluation }): JSX.Element {
  const two = e.versions.length > 1;
  return (
    <>
      <Table label="Figures" head={["Figure", ...e.versions.map((v): [string, "num"] => [v.version, "num"]), ...(two ? ["Difference"] : [])]}>
        {figures.map((f) => (
          <tr key={f.key} data-figure={f.key}>
            <th scope="row">{f.title}</th>
            {e.versions.map((v) => (
              <td key={v.version} class="num">
                {f.of(v)}
              </td>
            ))}
            {two && (
              <td>
                <Difference e={e} figure={f.key} mean={f.mean} />
              </td>
            )}
          </tr>
        ))}
      </Table>
      <p class="soft fine evaluation-about">
        {two && "The difference is between the means of a run. p is the probability of a difference of at least this size if the versions were the same; above 0.05 it is within chance. "}
        {e.judge_cost_usd > 0 && `The judge cost ${money(e.judge_cost_usd)}. `}
        {e.versions.map((v, i) => (
          <span key={v.version}>
            {i > 0 && ", "}
            <a href={href("agents", agentOf(v.version), { tab: "definition", version: v.version.slice(v.version.lastIndexOf("@") + 1) })}>Definition of {v.version}</a>
          </span>
        ))}
      </p>
    </>
  );
}

function Difference({ e, figure, mean }: { e: Evaluation; figure: string; mean: (n: number) => string }): JSX.Element | null {
  const d = e.differences?.find((d) => d.figure === figure);
  if (!d) return null;
  const v = verdict(d, e.versions[0]!.version);
  return (
    <>
      <Mark kind={v.kind} text={v.text} />{" "}
      {v.kind !== "same" && (
        <span class="soft">
          {mean(d.first)} and {mean(d.second)}, p = {d.p.toFixed(2)}
        </span>
      )}
    </>
  );
}

// shown is the number of cases that are drawn at first.
const shown = 200;

function Cases({ e, cases, versions }: { e: Evaluation; cases: Case[]; versions: string[] }): JSX.Element {
  const [all, setAll] = useState(false);
  const only = route.value.params.get("only") === "failures";
  const failing = cases.filter((c) => c.failed.length);
  const order: Record<string, Column<Case>> = { case: (c) => c.name, failures: (c) => c.failed.length };
  const list = sorted(only ? failing : cases, order);
  const drawn = all ? list : list.slice(0, shown);
  return (
    <div class="evaluation-cases">
      <div class="tools">
        <h2 class="sub">Cases</h2>
        <span class="grow" />
        <span class="pair" role="group" aria-label="Which cases">
          <button type="button" class="small quiet" aria-pressed={!only} onClick={() => setParams({ only: "" }, true)}>
            All {count(cases.length)}
          </button>
          <button type="button" class="small quiet" aria-pressed={only} onClick={() => setParams({ only: "failures" }, true)}>
            With failures {count(failing.length)}
          </button>
        </span>
      </div>
      {drawn.length > 0 ? (
        <Table label="Cases" head={["Case", ...versions.map((v): [string, "num"] => [v, "num"]), "Runs and failures"]} sorts={["case", ...versions.map(() => ""), "failures"]}>
          {drawn.map((c) => (
            <CaseRow key={c.name} c={c} versions={versions} many={e.repeat * versions.length > 1} />
          ))}
        </Table>
      ) : (
        <Empty title="No case has failures" />
      )}
      {list.length > drawn.length && (
        <button type="button" class="small more" onClick={() => setAll(true)}>
          Show all {plural(list.length, "case")}
        </button>
      )}
    </div>
  );
}

function CaseRow({ c, versions, many }: { c: Case; versions: string[]; many: boolean }): JSX.Element {
  const runs = c.runs.flat();
  const [first] = c.failed;
  return (
    <tr data-case={c.name}>
      <th scope="row">{c.name}</th>
      {c.runs.map((of, i) => {
        const n = of.filter(passed).length;
        return (
          <td key={versions[i]} class="num">
            {of.length > 0 && <StatusMark status={n === of.length ? "completed" : n ? "incomplete" : "failed"} />} {n} of {of.length}
          </td>
        );
      })}
      <td class="case-runs">
        {many && first && (
          <p>
            {versions.length > 1 && <span class="soft">{first.version}: </span>}
            {first.failures?.[0]}
          </p>
        )}
        {many ? (
          <Fold summary={plural(runs.length, "run")}>
            {() => (
              <ul class="plain">
                {runs.map((r) => (
                  <Run key={r.run_id} r={r} version={versions.length > 1} />
                ))}
              </ul>
            )}
          </Fold>
        ) : (
          <ul class="plain">
            {runs.map((r) => (
              <Run key={r.run_id} r={r} version={false} />
            ))}
          </ul>
        )}
      </td>
    </tr>
  );
}

// Run links to a run, unless it was deleted before the evaluation had read it. One that was deleted later has a
// page that says so.
function Run({ r, version }: { r: EvaluationResult; version: boolean }): JSX.Element {
  return (
    <li>
      <StatusMark status={passed(r) ? "completed" : "failed"} />{" "}
      {r.status === "deleted" ? (
        <span class="mono" title={r.run_id}>
          {shortId(r.run_id)}
        </span>
      ) : (
        <a class="mono" href={runHref(r.run_id)} title={r.run_id}>
          {shortId(r.run_id)}
        </a>
      )}{" "}
      <span class="soft">
        {version && `${r.version}, `}
        {passed(r) ? "passed" : "failed"}
        {r.status === "deleted" ? ", run deleted" : r.status !== "completed" && `, ended ${r.status}`}, {money(r.cost_usd)}, {span(r.seconds * 1000)}
      </span>
      {r.failures?.map((text, i) => (
        <p key={i}>{text}</p>
      ))}
    </li>
  );
}
