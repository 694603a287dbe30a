// The states that are no content: loading, empty, refused, broken.
import type { ComponentChildren, JSX } from "preact";
import type { ApiError } from "../api/client";

export function Loading({ what }: { what: string }): JSX.Element {
  return (
    <div class="state loading" role="status">
      <span class="visually-hidden">Loading {what}</span>
      <div class="skeleton" />
      <div class="skeleton" />
      <div class="skeleton" />
    </div>
  );
}

export function Empty({ title, children }: { title: string; children?: ComponentChildren }): JSX.Element {
  return (
    <div class="state">
      <p class="state-title">{title}</p>
      {children}
    </div>
  );
}

const advice: Record<number, string> = {
  0: "Is the gateway up, and the network? Try again in a moment.",
  403: "Your key or account lacks the role. Ask an administrator of this tenant, or choose another tenant above.",
  404: "It may have been deleted, or belong to another tenant than the one chosen above.",
  429: "Too much was asked at once. Wait a little and try again.",
};

export function Problem({ error, again }: { error: ApiError; again?: (() => void) | undefined }): JSX.Element {
  const title = error.status === 0 ? "No answer" : error.status === 403 ? "Not allowed" : error.status === 404 ? "Not here" : "That did not work";
  return (
    <div class="state problem" role="alert">
      <p class="state-title">{title}</p>
      <p>{error.message}</p>
      <p class="soft">{advice[error.status] ?? (error.status >= 500 ? "The log of the gateway says more. Try again in a moment." : "")}</p>
      {error.requestId && (
        <p class="soft">
          request <code>{error.requestId}</code>
        </p>
      )}
      {again && (
        <button type="button" onClick={again}>
          Try again
        </button>
      )}
    </div>
  );
}
