// Who looks at the page: login, tenant, roles.
import { computed, signal } from "@preact/signals";
import { ApiError, chooseTenant, errorOf, get, request, tenant } from "../api/client";
import type { Identity, Session } from "../api/types";

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

// may says whether a role is had. What is not known is allowed: the gateway decides.
export const may = (role: string): boolean => {
  const roles = identity.value?.roles;
  return !roles || roles.includes(role) || roles.includes("admin");
};

export async function loadSession(): Promise<void> {
  try {
    session.value = await get<Session>("/v1/session");
    sessionError.value = null;
    if (session.value.principal) await loadIdentity();
    else identity.value = null;
  } catch (e) {
    sessionError.value = errorOf(e);
  }
}

async function loadIdentity(): Promise<void> {
  try {
    identity.value = await get<Identity>("/v1/whoami");
  } catch (e) {
    const err = errorOf(e);
    identity.value = null;
    // A tenant that was chosen once and is no longer one's own.
    if (tenant.value && (err.status === 403 || err.status === 400)) chooseTenant("");
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
  chooseTenant("");
  identity.value = null;
  await loadSession();
}

// loggedOut is for whoever meets a 401: the session has ended meanwhile.
export function loggedOut(e: ApiError): void {
  if (e.status === 401 && session.value?.principal) {
    session.value = { ...session.value, principal: "" };
    sessionError.value = e;
  }
}
