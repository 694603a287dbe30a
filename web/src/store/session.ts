// Who looks at the page: login, tenant, roles.
import { computed, signal } from "@preact/signals";
import { ApiError, chooseTenant, errorOf, get, request, tenant } from "../api/client";
import type { Identity, Role, Session } from "../api/types";

export const session = signal<Session | null>(null);
export const identity = signal<Identity | null>(null);
export const sessionError = signal<ApiError | null>(null);

// Whoever has to log in and has not. Where nobody logs in there are no ways.
export const mustLogIn = computed(() => session.value !== null && session.value.ways.length > 0 && !session.value.principal);
export const ready = computed(() => session.value !== null && !mustLogIn.value && !mustChoose.value);

// Somebody who has roles in several tenants has to say which one.
export const mustChoose = computed(() => {
  const s = session.value;
  if (!s?.principal || tenant.value) return false;
  return s.tenants.includes("*") ? false : s.tenants.length > 1;
});

// chooses says whether the page offers a choice of tenants.
export const chooses = computed(() => {
  const tenants = session.value?.principal ? session.value.tenants : [];
  return tenants.includes("*") || tenants.length > 1;
});

// may says whether one of the roles is had. Each includes viewer, and no other. What is not
// known is allowed: the gateway decides.
export const may = (...roles: Role[]): boolean => {
  const has = identity.value?.roles;
  return !has || roles.some((r) => has.includes(r));
};

// sessionEnded says that somebody was logged in, is no longer, and has not logged out here.
export const sessionEnded = signal(false);

// loggedOutHere counts how often somebody has logged out in this tab.
export const loggedOutHere = signal(0);

export async function loadSession(): Promise<void> {
  try {
    const s = await get<Session>("/v1/session");
    if (s.principal) sessionEnded.value = false;
    else if (session.peek()?.principal) sessionEnded.value = true;
    session.value = s;
    sessionError.value = null;
    if (s.principal) await loadIdentity();
    else identity.value = null;
  } catch (e) {
    sessionError.value = errorOf(e);
  }
}

// answers reports whether the gateway answers.
export async function answers(): Promise<boolean> {
  try {
    await get<Session>("/v1/session");
    return true;
  } catch (e) {
    return errorOf(e).status !== 0;
  }
}

async function loadIdentity(): Promise<void> {
  const asked = tenant.peek();
  try {
    const who = await get<Identity>("/v1/whoami");
    if (asked === tenant.peek()) identity.value = who;
  } catch (e) {
    if (asked !== tenant.peek()) return; // another one was chosen meanwhile
    const err = errorOf(e);
    identity.value = null;
    // A tenant that was chosen once and is no longer one's own.
    if (tenant.value && (err.status === 403 || err.status === 400)) {
      chooseTenant("");
      if (!mustChoose.value) await loadIdentity();
    }
  }
}

export async function switchTenant(name: string): Promise<void> {
  chooseTenant(name.trim());
  if (session.value?.principal) await loadIdentity();
}

export async function logIn(key: string): Promise<void> {
  await request("POST", "/v1/session", { body: { key } });
  await loadSession();
}

export async function logOut(): Promise<void> {
  await request("DELETE", "/v1/session");
  loggedOutHere.value++;
  sessionStorage.removeItem("unsaved");
  chooseTenant("");
  identity.value = null;
  session.value = null;
  await loadSession();
  sessionEnded.value = false;
}

// loggedOut is for whoever meets a 401: the session has ended meanwhile.
export function loggedOut(e: ApiError): void {
  if (e.status === 401 && session.value?.principal) {
    session.value = { ...session.value, principal: "" };
    sessionEnded.value = true;
  }
}
