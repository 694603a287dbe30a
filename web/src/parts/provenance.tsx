// What is said to whoever decides about a call: that a stranger may have written its arguments.
import type { JSX } from "preact";
import type { ArgumentSource, WaitCall } from "../api/types";

function where(s: ArgumentSource): JSX.Element {
  const tool = s.tool ? <span class="mono">{s.tool}</span> : null;
  const text = {
    tool: tool ? <>the result of {tool}</> : <>the result of a tool</>,
    web: tool ? <>the web content that {tool} returned</> : <>content from the web</>,
    agent: tool ? <>the answer of the agent behind {tool}</> : <>the answer of another agent</>,
    person: <>a message of a person</>,
  };
  return (
    <>
      {text[s.origin]}
      {s.turn ? ` in turn ${s.turn}` : ""}
    </>
  );
}

export function Provenance({ call }: { call: WaitCall }): JSX.Element | null {
  if (!call.args_from_untrusted)
    return call.untrusted_seen ? <p class="soft fine">Before this call, the model has read content from tools, the web or other agents. None of the arguments occurs there literally.</p> : null;
  const list = call.sources ?? [];
  return (
    <div class="provenance" role="note" aria-label="Where the arguments come from">
      {list.length ? (
        <ul class="plain">
          {list.map((s) => (
            <li key={s.argument}>
              <span class="mono">{s.argument}</span> also occurs in {where(s)}
            </li>
          ))}
        </ul>
      ) : (
        <p>The arguments may come from tools, the web or other agents.</p>
      )}
      <p class="soft fine">A stranger may have written it. Check the arguments before you approve.</p>
    </div>
  );
}
