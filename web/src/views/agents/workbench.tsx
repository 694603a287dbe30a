// Where a definition is written and tried: the editor, and beside it a run of what stands in
// it, saved or not.
import type { JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { errorOf, type Fault } from "../../api/client";
import type { Agent, Run } from "../../api/types";
import { Empty, Loading, Problem } from "../../parts/states";
import { StatusChip } from "../../parts/status";
import { Ticks } from "../../parts/ticks";
import { count, money, plural, tokens } from "../../lib/words";
import { keepUnsaved, nameIn, runDraft, saveAgent, scripted, unsaved, unsavedKey } from "../../store/agents";
import { go, href, route, runHref, setParams } from "../../store/route";
import { loggedOut, may } from "../../store/session";
import { attempt, toast } from "../../store/toasts";
import { Conversation } from "../run/conversation";
import { NeedsYou } from "../run/needs";
import { Outcome } from "../run/outcome";
import { useRun } from "../run/run";
import type { Editor } from "./editor";

const first = `name: hello
description: Answers in one sentence.
instructions: You are friendly and brief.
model:
  provider: scripted
  responses:
    - text: Hello from the first agent.
`;

export function NewAgentView(): JSX.Element {
  return (
    <section class="page-view">
      <div class="view-head">
        <h1>New agent</h1>
        <span class="soft">Try it as a draft, then save it.</span>
      </div>
      <Workbench name="" saved={first} done={() => undefined} />
    </section>
  );
}

interface BenchProps {
  name: string;
  saved: string;
  done: () => void;
}

// Workbench begins anew when it turns out who writes, and where: they may have unsaved text.
export const Workbench = (props: BenchProps): JSX.Element => <Bench key={unsavedKey(props.name)} {...props} />;

function Bench({ name, saved, done }: BenchProps): JSX.Element {
  const [faults, setFaults] = useState<Fault[]>([]);
  const [busy, setBusy] = useState("");
  const [input, setInput] = useState("Say hello.");
  const [answer, setAnswer] = useState("This is what the model says.");
  const [as, setAs] = useState("written");
  const key = unsavedKey(name);
  const text = useRef(unsaved.peek().get(key) ?? saved);
  const base = useRef(saved); // what was saved last, as it was written
  const changed = unsaved.value.has(key);
  const editor = useRef<Editor | null>(null);
  const run = route.value.params.get("run") ?? "";

  const fail = (e: unknown): void => {
    const err = errorOf(e);
    loggedOut(err);
    const list = err.faults.length ? err.faults : [{ detail: err.message }];
    setFaults(list);
    editor.current?.setFaults(list.filter((f) => f.line));
  };
  // warn shows what nobody has of what was saved.
  const warn = (a: Agent): void => {
    const list = (a.warnings ?? []).map((w) => ({ ...w, warning: true }));
    setFaults(list);
    editor.current?.setFaults(list.filter((f) => f.line));
  };
  const clear = (): void => {
    setFaults([]);
    editor.current?.setFaults([]);
  };
  const change = (t: string): void => {
    text.current = t;
    keepUnsaved(key, t === base.current ? null : t);
  };
  const save = async (): Promise<void> => {
    const to = name || nameIn(text.current);
    if (!to) return fail(new Error("The definition needs a name: a line `name: hello` at its top."));
    setBusy("save");
    clear();
    try {
      const sent = text.current;
      const a = await saveAgent(to, sent);
      base.current = sent;
      change(text.current);
      warn(a);
      if (a.status === "draft") {
        toast(`${a.name} is kept as a draft: runs use it once somebody else has published it.`);
        done();
        if (!name) go(href("agents", a.name));
        return;
      }
      toast(`${a.name} is saved: version ${a.version}.`);
      done();
      if (!name && !a.warnings?.length) go(href("agents", a.name));
    } catch (e) {
      fail(e);
    } finally {
      setBusy("");
    }
  };
  const tryIt = async (): Promise<void> => {
    const definition = as === "written" ? text.current : scripted(text.current, answer);
    if (definition === null) return fail(new Error("The definition is not valid JSON, so its model cannot be replaced. Correct the JSON."));
    setBusy("run");
    clear();
    try {
      const r = await runDraft(definition, input);
      setParams({ run: r.id }, true);
    } catch (e) {
      fail(e);
    } finally {
      setBusy("");
    }
  };
  // The editor keeps the first functions that it is given.
  const acts = useRef({ change, save, tryIt });
  acts.current = { change, save, tryIt };

  if (!may("author"))
    return (
      <Empty title="You may look, not change">
        <p>Changing definitions needs the role author. Ask an administrator of this tenant for it.</p>
      </Empty>
    );
  return (
    <div class="workbench">
      <section class="bench-left" aria-label="Definition">
        <Source
          text={text.current}
          ready={(e) => {
            editor.current = e;
          }}
          change={(t) => acts.current.change(t)}
          run={() => void acts.current.tryIt()}
          save={() => void acts.current.save()}
        />
        {faults.length > 0 && (
          <div class={faults.every((f) => f.warning) ? "faults warnings" : "faults"} role="alert">
            <p>
              <strong>
                {faults.every((f) => f.warning)
                  ? `Saved, with ${plural(faults.length, "warning")}: the deployment lacks what these lines name`
                  : faults.some((f) => f.line)
                    ? plural(faults.length, "mistake")
                    : "Not taken"}
              </strong>
            </p>
            <ul>
              {faults.map((f, i) => (
                <li key={i}>
                  {f.line ? (
                    <button type="button" class="small" onClick={() => editor.current?.focus(f.line)}>
                      line {f.line}
                    </button>
                  ) : null}
                  <span>
                    {f.at && <code>{f.at}</code>}
                    {f.at ? ": " : ""}
                    <Ticks text={f.detail} />
                  </span>
                </li>
              ))}
            </ul>
          </div>
        )}
        <div class="bench-acts">
          <span class="soft">{changed ? "changed, not saved" : ""}</span>
          {changed && (
            <button
              type="button"
              class="quiet small"
              onClick={() => {
                editor.current?.setText(base.current);
                clear();
              }}
            >
              Undo all
            </button>
          )}
          <span class="grow" />
          <button type="button" disabled={busy !== ""} onClick={() => void save()} title="Ctrl-S">
            {name ? "Save as a new version" : "Save"}
          </button>
        </div>
      </section>
      <section class="bench-right" aria-label="Try it">
        <form
          class="try"
          onSubmit={(e) => {
            e.preventDefault();
            void tryIt();
          }}
        >
          <label>
            Input
            <textarea rows={2} value={input} onInput={(e) => setInput((e.target as HTMLTextAreaElement).value)} />
          </label>
          <label>
            Model
            <select value={as} onChange={(e) => setAs((e.target as HTMLSelectElement).value)}>
              <option value="written">as it is written</option>
              <option value="scripted">scripted: says what you write here, costs nothing</option>
            </select>
          </label>
          {as === "scripted" && (
            <label>
              The model's answer
              <textarea rows={2} value={answer} onInput={(e) => setAnswer((e.target as HTMLTextAreaElement).value)} />
            </label>
          )}
          <div class="buttons">
            <span class="soft grow">{may("submitter") ? "Runs what stands in the editor. No list of agents has it." : "Running it needs the role submitter, too."}</span>
            <button type="submit" class="primary" disabled={busy !== "" || !input.trim() || !may("submitter")} title="Ctrl-Enter">
              Run the draft
            </button>
          </div>
        </form>
        {run ? (
          <DraftRun key={run} id={run} />
        ) : (
          <Empty title="Nothing was tried yet">
            <p class="soft">Its run appears here as it happens.</p>
          </Empty>
        )}
      </section>
    </div>
  );
}

function DraftRun({ id }: { id: string }): JSX.Element {
  const model = useRun(id);
  const run = model?.run.value;
  if (model?.error.value && !run) return <Problem error={model.error.value} again={() => void model.begin()} />;
  if (!model || !run) return <Loading what="the run" />;
  return (
    <article class="draft-run" data-run={run.id} data-status={run.status}>
      <div class="tools">
        <StatusChip run={run} />
        <span class="soft">{facts(run)}</span>
        <span class="grow" />
        <a href={runHref(run.id)}>Open the run</a>
      </div>
      <NeedsYou model={model} run={run} />
      <Outcome model={model} run={run} />
      <Conversation model={model} run={run} />
    </article>
  );
}

const facts = (r: Run): string => [plural(r.turn_count, "turn"), tokens(r) ? `${count(tokens(r))} tokens` : "", money(r.usage.cost_usd)].filter(Boolean).join(" · ");

interface SourceProps {
  text: string;
  ready: (e: Editor) => void;
  change: (text: string) => void;
  run: () => void;
  save: () => void;
}

// Source loads the editor. Until it is there, and if it does not come, a plain field does.
function Source({ text, ready, change, run, save }: SourceProps): JSX.Element {
  const host = useRef<HTMLDivElement>(null);
  const field = useRef<HTMLTextAreaElement>(null);
  const [plain, setPlain] = useState(true);
  useEffect(() => {
    let gone = false;
    let close = (): void => undefined;
    void attempt(async () => {
      const { edit } = await import("./editor");
      if (gone) return;
      const e = edit(host.current!, field.current?.value ?? text, { change, run, save });
      close = e.close;
      ready(e);
      setPlain(false);
    });
    return () => {
      gone = true;
      close();
    };
  }, []);
  return (
    <div class="editor">
      <div ref={host} class={plain ? "editor-host off" : "editor-host"} />
      {plain && <textarea ref={field} aria-label="Definition" spellcheck={false} class="mono" defaultValue={text} onInput={(e) => change((e.target as HTMLTextAreaElement).value)} />}
    </div>
  );
}
