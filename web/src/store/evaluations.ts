// The evaluations that the tenant keeps, and one of them with its cases.
import { batch, computed, signal, type Signal } from "@preact/signals";
import { type ApiError, errorOf, get, query, request } from "../api/client";
import type { Evaluation, EvaluationSummary } from "../api/types";
import { List } from "./list";
import { route } from "./route";
import { loggedOut } from "./session";

const here = computed(() => (route.value.view === "evaluations" ? route.value : null));
export const evaluatedAgent = computed(() => here.value?.params.get("agent") ?? "");

const path = computed(() => (here.value && !here.value.id ? "/v1/evaluations" + query({ agent: evaluatedAgent.value, limit: 100 }) : ""));
export const evaluations = new List<EvaluationSummary>(() => path.value, 10_000);

const address = (id: string): string => "/v1/evaluations/" + encodeURIComponent(id);

export const evaluation: Signal<Evaluation | null> = signal(null);
export const evaluationError: Signal<ApiError | null> = signal(null);
let reading = 0;

export async function readEvaluation(id: string): Promise<void> {
  const mine = ++reading;
  try {
    const e = await get<Evaluation>(address(id));
    if (mine !== reading) return;
    batch(() => {
      evaluation.value = e;
      evaluationError.value = null;
    });
  } catch (e) {
    if (mine !== reading) return;
    evaluationError.value = errorOf(e);
    loggedOut(evaluationError.value);
  }
}

export function closeEvaluation(): void {
  reading++;
  evaluation.value = null;
  evaluationError.value = null;
}

export async function deleteEvaluation(id: string): Promise<void> {
  await request("DELETE", address(id));
}
