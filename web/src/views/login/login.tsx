import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { errorOf } from "../../api/client";
import { logIn, session, sessionEnded, sessionError } from "../../store/session";

// Login exchanges an API key for a session. The page keeps the key nowhere.
export function Login(): JSX.Element {
  const [problem, setProblem] = useState("");
  const [busy, setBusy] = useState(false);
  const ways = session.value?.ways ?? [];
  const submit = async (e: SubmitEvent): Promise<void> => {
    e.preventDefault();
    const form = e.target as HTMLFormElement;
    const key = new FormData(form).get("key") as string;
    setBusy(true);
    try {
      await logIn(key);
    } catch (err) {
      setProblem(errorOf(err).message);
    } finally {
      setBusy(false);
    }
  };
  const back = encodeURIComponent(location.pathname + location.hash);
  const ended = sessionEnded.value ? "Your session has ended: it expired, its key was revoked, or you logged out in another tab. Log in again to continue here." : "";
  const said = problem || sessionError.value?.message || ended;
  return (
    <section class="login">
      <h1>Log in</h1>
      {said && (
        <p class="error-text" role="alert">
          {said}
        </p>
      )}
      {!window.isSecureContext && <p>Browsers keep a session only over https or on localhost: open this page at such an address.</p>}
      {ways.includes("key") && (
        <form onSubmit={(e) => void submit(e)}>
          <label>
            API key
            <input type="password" name="key" autocomplete="off" placeholder="tp_…" required />
          </label>
          <button type="submit" class="primary" disabled={busy}>
            Log in with an API key
          </button>
        </form>
      )}
      {ways.includes("oidc") && (
        <p>
          <a class="button" href={"/auth/login?return=" + back}>
            Log in through your organization
          </a>
        </p>
      )}
    </section>
  );
}
