// What is said to whoever decides about a call: that a stranger may have written its arguments.
import type { JSX } from "preact";
import type { ArgumentSource, WaitCall } from "../api/types";

function where(s: ArgumentSource): JSX.Element {
  const tool = s.tool ? <span class="mono">{s.tool}</span> : null;
  const text = { tool: tool ? <>the result of {tool}</> : <>what a tool has said</>, web: tool ? <>what {tool} got from the web</> : <>a text from the web</>, agent: tool ? <>the answer of the agent behind {tool}</> : <>what another agent has said</>, person: <>what a person has said</> };
  return (
    <>
      {text[s.origin]}
      {s.turn ? ` in turn ${s.turn}` : ""}
    </>
  );
}

export function Provenance({ call }: { call: WaitCall }): JSX.Element | null {
  if (!call.args_from_untrusted) return call.untrusted_seen ? <p class="soft fine">Before it asked for this, the model has read what tools, the web or other agents have said. No argument stands there word for word.</p> : null;
  const list = call.sources ?? [];
  return (
    <div class="provenance" role="note" aria-label="Where the arguments come from">
      {list.length ? (
        <ul class="plain">
          {list.map((s) => (
            <li key={s.argument}>
              <span class="mono">{s.argument}</span> also stands in {where(s)}
            </li>
          ))}
        </ul>
      ) : (
        <p>Nobody can say that the arguments did not come out of what tools, the web or other agents have said.</p>
      )}
      <p class="soft fine">A stranger may have written it. Check it before you approve.</p>
    </div>
  );
}
