// The states that are no content: loading, empty, refused, broken.
import type { ComponentChildren, JSX } from "preact";
import type { ApiError } from "../api/client";
import { chooses } from "../store/session";
import { Ticks } from "./ticks";

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

// adviceOn says what to do about a status. The choice of a tenant stands above only if there is one.
function adviceOn(status: number): string {
  switch (status) {
    case 0:
      return "Check that the gateway is running and your network works, then try again.";
    case 403:
      return `Your key or account lacks the role. Ask an administrator of this tenant${chooses.value ? ", or choose another tenant above" : ""}.`;
    case 404:
      return chooses.value ? "It may have been deleted, or may belong to another tenant than the one chosen above." : "It may have been deleted. Check its id.";
    case 429:
      return "There were too many requests at once. Wait a moment, then try again.";
    default:
      return status >= 500 ? "Try again in a moment. The gateway's log has the cause." : "";
  }
}

export function Problem({ error, again }: { error: ApiError; again?: (() => void) | undefined }): JSX.Element {
  const title = error.status === 0 ? "No answer" : error.status === 403 ? "Not allowed" : error.status === 404 ? "Not here" : "That did not work";
  return (
    <div class="state problem" role="alert">
      <p class="state-title">{title}</p>
      <p>
        <Ticks text={error.message} />
      </p>
      <p class="soft">{adviceOn(error.status)}</p>
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
