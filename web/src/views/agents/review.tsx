// A draft that waits for review: who wrote it, what it changes, and what may be done with it.
import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { errorOf } from "../../api/client";
import type { Agent, AgentDraft } from "../../api/types";
import { diff, folded } from "../../lib/diff";
import { Lines } from "../../parts/lines";
import { Ago } from "../../parts/time";
import { toYAML } from "../../lib/yaml";
import { href } from "../../store/route";
import { discard, publish, reviews } from "../../store/reviews";
import { identity, loggedOut, may } from "../../store/session";
import { toast } from "../../store/toasts";

// Waiting lists the drafts of a tenant, where there are any.
export function Waiting(): JSX.Element | null {
  const list = reviews.items.value;
  if (!list.length) return null;
  return (
    <section class="card waiting-drafts" aria-label="Wait for review">
      <h2>Wait for review</h2>
      <ul class="plain">
        {list.map((d) => (
          <li key={d.name} data-draft={d.name}>
            <a href={href("agents", d.name)}>{d.name}</a>
            <span class="soft">@{d.version}</span>
            <span class="soft">
              {" "}
              written by {d.by.principal} <Ago at={d.created_at} />
            </span>
          </li>
        ))}
      </ul>
    </section>
  );
}

// Review shows a draft as it was when it was opened: another one that comes meanwhile is looked
// at before it can be published. published is the version that runs use now.
export function Review({ draft, published, done }: { draft: AgentDraft; published: Agent | null; done: () => void }): JSX.Element {
  const [seen, setSeen] = useState(draft);
  const [problem, setProblem] = useState("");
  const [busy, setBusy] = useState(false);
  const fresh = draft.hash !== seen.hash;
  const own = (seen.authors ?? [seen.by.principal]).includes(identity.value?.principal ?? "");
  const act = async (what: () => Promise<unknown>, said: string): Promise<void> => {
    setBusy(true);
    setProblem("");
    try {
      await what();
      toast(said);
      done();
    } catch (e) {
      const err = errorOf(e);
      loggedOut(err);
      setProblem(err.message);
    }
    await reviews.load();
    setBusy(false);
  };
  const lines = diff(published ? toYAML(published.definition) : "", toYAML(seen.definition)).filter((l) => published || l.kind === "new");
  return (
    <section class="card review" aria-label="A draft waits for review" data-hash={seen.hash}>
      <div class="needs-head">
        <h2>A draft waits for review</h2>
        <span class="soft">
          written by {seen.by.principal} <Ago at={seen.created_at} />
        </span>
        <span class="grow" />
        <span class="soft mono" title="What is published is exactly what has this hash">
          {seen.hash.slice(0, 12)}
        </span>
      </div>
      <p class="soft">{published ? `Runs use version ${published.version} until it is published, as version ${seen.version}.` : "No run can use the agent until it is published."}</p>
      <Lines lines={folded(lines)} />
      {fresh && (
        <p class="error-text" role="alert">
          It has changed since you opened it.{" "}
          <button
            type="button"
            class="small"
            onClick={() => {
              setSeen(draft);
              setProblem("");
            }}
          >
            Show what it says now
          </button>
        </p>
      )}
      {problem && (
        <p class="error-text" role="alert">
          {problem}
        </p>
      )}
      <div class="needs-acts">
        <span class="soft grow">{own ? "You wrote it: another author must publish it." : may("author", "admin") ? "" : "Publishing it needs the role author or admin."}</span>
        {may("author") && (
          <button type="button" class="danger" disabled={busy || fresh} onClick={() => void act(() => discard(seen), `The draft of ${seen.name} was discarded.`)}>
            Discard
          </button>
        )}
        <button
          type="button"
          class="primary"
          disabled={busy || fresh || own || !may("author", "admin")}
          onClick={() => void act(() => publish(seen), `${seen.name} is published: version ${seen.version}.`)}
        >
          Publish
        </button>
      </div>
    </section>
  );
}
