import type { JSX } from "preact";
import type { Part } from "../api/types";
import { sourcesOf } from "../lib/sources";

// Sources lists what an answer cites. Links show where they lead.
export function Sources({ parts }: { parts: readonly Part[] }): JSX.Element | null {
  const list = sourcesOf(parts);
  if (!list.length) return null;
  return (
    <section class="sources" aria-label="Sources">
      <h3>Sources</h3>
      <ol>
        {list.map((s) => (
          <li key={s.url || s.title}>
            {s.url ? (
              <a href={s.url} title={s.url} target="_blank" rel="noopener noreferrer nofollow">
                {s.title} <bdi class="link-host">({new URL(s.url).host})</bdi>
              </a>
            ) : (
              s.title
            )}
            {s.quotes.map((q) => (
              <q key={q} class="soft clip" title={q}>
                {q}
              </q>
            ))}
          </li>
        ))}
      </ol>
    </section>
  );
}
