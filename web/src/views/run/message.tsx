import type { JSX } from "preact";
import { useState } from "preact/hooks";
import type { Event, FileRef, JSONValue, Part, Run } from "../../api/types";
import { Fold } from "../../parts/fold";
import { Icon } from "../../parts/icon";
import { Picture } from "../../parts/image";
import { JSONTree, parsed } from "../../parts/json";
import { Markdown } from "../../parts/markdown";
import { memo } from "../../parts/memo";
import { Sources } from "../../parts/sources";
import { clock, exact } from "../../parts/time";
import { bytes, call as callText, count, money, span } from "../../lib/words";
import type { Item } from "../../lib/conversation";
import { joined } from "../../lib/sources";
import { runHref, setParams } from "../../store/route";

const longText = 6000;
const none: Map<string, Event> = new Map();

// Bubble is one message. It is drawn again if the message or its run has changed, not with each
// word that streams below it.
export const Bubble = memo(function Bubble({ item, run, fork }: { item: Item; run: Run; fork: boolean }): JSX.Element {
  const m = item.message!;
  const results = item.results ?? none;
  const e = item.entry;
  const tie = "s" + e.seq;
  const u = e.type === "model.message" ? e.usage : undefined;
  const parts = m.parts ?? [];
  if (m.role === "system") {
    return (
      <Fold class="bubble system" data-tie={tie} summary="Instructions">
        {() => parts.map((p, i) => <PartView key={i} part={p} results={results} run={run} />)}
      </Fold>
    );
  }
  return (
    <div class={`bubble ${m.role}${item.kind === "gone" ? " gone" : ""}`} data-tie={tie}>
      <div class="who-line">
        <strong>{m.role === "user" ? (item.by ?? "user") : m.role === "assistant" ? `turn ${m.turn}` : m.role}</strong>
        {m.model && <span class="soft">{m.model}</span>}
        {item.kind === "gone" && <span class="soft">broke off: the model does not see it</span>}
        {m.undelivered && <span class="soft">not delivered: the run ended before</span>}
        {e.attempt > 1 && e.type === "model.message" && <span class="soft">attempt {e.attempt}</span>}
        {u && (u.input_tokens > 0 || u.output_tokens > 0) && (
          <span class="soft" title="tokens in and out">
            {count(u.input_tokens)} → {count(u.output_tokens)} {money(u.cost_usd)}
          </span>
        )}
        <span class="ends">
          {fork && (
            <button type="button" class="quiet small fork-here" title={`A new run that shares the history up to the end of turn ${m.turn}`} onClick={() => setParams({ fork: String(m.turn), at: "" })}>
              <Icon name="fork" /> <span class="fork-word">fork here</span>
            </button>
          )}
          <button type="button" class="quiet small at" title={exact(e.at)} onClick={() => setParams({ at: String(e.seq), fork: "" })}>
            <time dateTime={e.at}>
              {clock(e.at).slice(0, 8)}
              <span class="ms">{clock(e.at).slice(8)}</span>
            </time>
          </button>
        </span>
      </div>
      {joined(parts).map((p, i) => (
        <PartView key={i} part={p} results={results} edits={item.edits} run={run} />
      ))}
      <Sources parts={parts} />
      {e.stop_reason && e.stop_reason !== "end" && e.stop_reason !== "tool_calls" && <p class="soft">stopped: {e.stop_reason}</p>}
    </div>
  );
});

function PartView({ part, results, edits, run }: { part: Part; results: Map<string, Event>; edits?: Map<string, JSONValue> | undefined; run: Run }): JSX.Element | null {
  switch (part.type) {
    case "text":
      return (
        <>
          {part.origin && <p class="origin">{origins[part.origin]}</p>}
          <Text text={part.text ?? ""} />
        </>
      );
    case "thinking":
      return part.text ? (
        <Fold class="thinking" summary="Reasoning">
          {() => <Markdown text={part.text!} />}
        </Fold>
      ) : (
        <p class="soft">Reasoning that the provider keeps to itself</p>
      );
    case "tool_call": {
      const waits = run.waiting?.calls.find((c) => c.id === part.id);
      return (
        <CallCard
          id={part.id ?? ""}
          name={part.name ?? ""}
          args={part.arguments ?? null}
          edited={edits?.get(part.id ?? "")}
          result={results.get(part.id ?? "")}
          state={waits ? "waits" : run.finished_at ? "none" : "going"}
          child={waits?.run_id ?? null}
        />
      );
    }
    case "tool_result":
      return <ResultView content={part.content ?? ""} isError={!!part.is_error} part={part} />;
    case "image":
      return <Picture image={part} />;
    case "file":
      return <FileLine file={part} />;
    case "provider_tool":
      return <ProviderTool part={part} />;
  }
}

// ProviderTool is a use of a tool that the model's provider ran, with what it shows of the result.
function ProviderTool({ part }: { part: Part }): JSX.Element {
  return (
    <Fold class="provider-tool" summary={`${part.name}, run by the model's provider${part.is_error ? ": failed" : ""}`}>
      {() => (
        <>
          {part.arguments !== undefined && <pre>{JSON.stringify(part.arguments, null, 2)}</pre>}
          <p class="origin">{origins[part.origin ?? "tool"]}</p>
          <ResultView content={part.content ?? ""} isError={!!part.is_error} part={part} />
        </>
      )}
    </Fold>
  );
}

function Text({ text }: { text: string }): JSX.Element {
  const [all, setAll] = useState(false);
  if (text.length <= longText || all) return <Markdown text={text} />;
  return (
    <>
      <Markdown text={text.slice(0, longText)} />
      <button type="button" class="small" onClick={() => setAll(true)}>
        … all {bytes(text.length)}
      </button>
    </>
  );
}

interface CardProps {
  id: string;
  name: string;
  args: JSONValue;
  edited?: JSONValue | undefined; // the arguments that an approver gave
  result?: Event | undefined;
  state: "going" | "waits" | "none" | "writing";
  child?: string | null;
}

// Where a text comes from that neither a user nor the model has written. Most results are of
// tools, which goes without saying.
export const origins = { tool: "said by a tool", web: "from the web", agent: "said by another agent", person: "given by a person" };

// CallCard is a call with its result in it.
export function CallCard({ id, name, args, edited, result, state, child }: CardProps): JSX.Element {
  const bad = !!result && (result.is_error || result.message?.parts?.some((p) => p.is_error));
  const how = result
    ? `${bad ? "failed" : result.type === "tool.reused" ? "reused" : "done"}${result.duration_ms ? " " + span(result.duration_ms) : ""}`
    : { going: "in flight", waits: "waits", none: "no result", writing: "is written" }[state];
  const used = result?.arguments ?? edited;
  const from = result?.message?.parts?.find((p) => p.origin)?.origin;
  return (
    <Fold
      class={"call" + (bad ? " bad" : "")}
      data-tie={"c" + id}
      data-call={id}
      summary={
        <>
          <span class="mono clip">{callText(name, used ?? args)}</span>
          <span class="grow" />
          {from && <span class="origin">{origins[from]}</span>}
          <span class={bad ? "error-text" : "soft"}>{how}</span>
        </>
      }
    >
      {() => (
        <div class="call-in">
          <h3>Arguments</h3>
          {used !== undefined && <p class="soft">edited before the call: </p>}
          <JSONTree value={used ?? args} open={2} />
          {result?.message?.parts?.map((p, i) => (
            <ResultView key={i} content={p.content ?? ""} isError={!!p.is_error} part={p} />
          ))}
          {child && (
            <p>
              <a href={runHref(child)}>Open its run</a>
            </p>
          )}
          <button type="button" class="small quiet" onClick={() => setParams({ at: id, fork: "" })}>
            Detail
          </button>
        </div>
      )}
    </Fold>
  );
}

function FileLine({ file }: { file: FileRef }): JSX.Element {
  return <p class="soft">File {[file.name, file.media_type, file.bytes ? bytes(file.bytes) : "", file.file_id, file.url].filter(Boolean).join(", ")}</p>;
}

export function ResultView({ content, isError, part }: { content: string; isError: boolean; part: Part }): JSX.Element {
  const [all, setAll] = useState(content.length <= longText);
  const json = all ? parsed(content) : undefined;
  return (
    <div class={"result" + (isError ? " bad" : "")}>
      <h3>
        {isError ? "Error" : "Result"}
        {part.origin && <span class="origin"> {origins[part.origin]}</span>}
      </h3>
      {json !== undefined ? <JSONTree value={json} open={2} /> : <pre>{all ? content : content.slice(0, longText)}</pre>}
      {!all && (
        <button type="button" class="small" onClick={() => setAll(true)}>
          … all {bytes(content.length)}
        </button>
      )}
      {part.images?.map((img, i) => (
        <Picture key={i} image={img} />
      ))}
      {part.files?.map((file, i) => (
        <FileLine key={i} file={file} />
      ))}
    </div>
  );
}
