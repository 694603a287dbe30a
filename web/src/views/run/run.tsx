import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import { tenant } from "../../api/client";
import "../../parts/tie";
import { Loading, Problem } from "../../parts/states";
import { route, setParams } from "../../store/route";
import type { Run } from "../../api/types";
import { RunModel } from "../../store/run";
import { Conversation } from "./conversation";
import { Aligned } from "./aligned";
import { Detail } from "./detail";
import { Fork } from "./fork";
import { Head } from "./head";
import { Log } from "./log";
import { NeedsYou } from "./needs";
import { Outcome } from "./outcome";
import { Raw } from "./raw";
import { Timeline } from "./timeline";

export function useRun(id: string): RunModel | null {
  const [model, setModel] = useState<RunModel | null>(null);
  const of = tenant.value;
  useEffect(() => {
    if (!id) {
      setModel(null);
      return;
    }
    const m = new RunModel(id);
    setModel(m);
    return () => m.close();
  }, [id, of]);
  return model?.id === id ? model : null;
}

// RunView shows one run, and another one beside it.
export function RunView(): JSX.Element {
  const { id, params } = route.value;
  const other = params.get("beside") ?? "";
  const model = useRun(id);
  const beside = useRun(other);
  const at = params.get("at") ?? "";
  const forkTurn = params.get("fork");
  useEffect(() => {
    const on = (e: KeyboardEvent): void => {
      if (e.key === "Escape" && !document.querySelector("dialog[open]") && (at || forkTurn)) setParams({ at: "", fork: "" });
    };
    addEventListener("keydown", on);
    return () => removeEventListener("keydown", on);
  }, [at, forkTurn]);
  if (!model) return <Unread />;
  const side = forkTurn !== null ? <Fork key={forkTurn} model={model} turn={Number(forkTurn)} /> : at ? <Detail key={at} model={model} at={at} /> : null;
  if (beside && other) {
    return (
      <>
        <div class="beside">
          <One model={model} compact />
          <One model={beside} compact close={() => setParams({ beside: "" })} />
        </div>
        <Aligned left={model} right={beside} />
      </>
    );
  }
  return (
    <div class={"run-view" + (side ? " with-side" : "")}>
      <One model={model} />
      {side && (
        <aside class="side" aria-label={forkTurn !== null ? "Fork" : "Detail"}>
          {side}
        </aside>
      )}
    </div>
  );
}

function One({ model, compact = false, close }: { model: RunModel; compact?: boolean; close?: () => void }): JSX.Element {
  const run = model.run.value;
  if (!run) return <Unread model={model} />;
  return (
    <article class="run" data-run={run.id} data-status={run.status}>
      <Head model={model} run={run} close={close} />
      <div class="run-part">
        <NeedsYou model={model} run={run} />
        <Outcome model={model} run={run} />
        <Timeline model={model} run={run} />
      </div>
      {!compact && (
        <div class="run-part">
          <Views model={model} run={run} />
        </div>
      )}
    </article>
  );
}

// Unread is shown until the run has loaded, and shows the problem when loading fails. It carries
// the page's level-one heading until Head brings its own.
function Unread({ model }: { model?: RunModel }): JSX.Element {
  const error = model?.error.value;
  return (
    <>
      <h1 class="visually-hidden">Run</h1>
      {model && error ? <Problem error={error} again={() => void model.begin()} /> : <Loading what="the run" />}
    </>
  );
}

function Views({ model, run }: { model: RunModel; run: Run }): JSX.Element {
  const view = route.value.params.get("view") ?? "";
  const tabs: [string, string][] = [
    ["", "Conversation"],
    ["log", "Log"],
    ["json", "JSON"],
  ];
  return (
    <>
      <div class="tabs" role="group" aria-label="What is shown of the run">
        {tabs.map(([name, title]) => (
          <button type="button" key={name} class="quiet" aria-pressed={view === name} onClick={() => setParams({ view: name })}>
            {title}
          </button>
        ))}
      </div>
      {view === "log" ? <Log model={model} /> : view === "json" ? <Raw model={model} run={run} /> : <Conversation model={model} run={run} />}
    </>
  );
}
