import type { JSX } from "preact";
import { Empty } from "../../parts/states";
import { tenant } from "../../api/client";
import { chooses, logOut, session, switchTenant } from "../../store/session";
import { attempt } from "../../store/toasts";

// Who is logged in, and about which tenant this tab is.
export function Who(): JSX.Element | null {
  const s = session.value;
  if (!s?.principal) return null;
  return (
    <span class="who" id="who">
      <Choice tenants={s.tenants} />
      <span class="soft wide-only" title="logged in as">
        {s.principal}
      </span>
      <button type="button" class="quiet" onClick={() => void attempt(logOut)}>
        Log out
      </button>
    </span>
  );
}

function Choice({ tenants }: { tenants: string[] }): JSX.Element | null {
  const choose = (e: Event): void => void switchTenant((e.target as HTMLInputElement).value);
  if (tenants.includes("*")) return <input aria-label="Tenant" placeholder="tenant" value={tenant.value} onChange={choose} size={10} />;
  if (!chooses.value) return null;
  return (
    <select aria-label="Tenant" value={tenant.value} onChange={choose}>
      <option value="">tenant…</option>
      {tenants.map((t) => (
        <option key={t} value={t}>
          {t}
        </option>
      ))}
    </select>
  );
}

// ChooseTenant is for somebody who has roles in several and has not said which one.
export function ChooseTenant(): JSX.Element {
  return (
    <Empty title="Choose a tenant">
      <p>You have roles in several. The page shows one at a time; the choice at the top right changes it later.</p>
      <p class="tenants">
        {session.value?.tenants.map((t) => (
          <button key={t} type="button" onClick={() => void switchTenant(t)}>
            {t}
          </button>
        ))}
      </p>
    </Empty>
  );
}
