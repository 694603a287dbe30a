// Memories: their names, the files of one memory, and one file. Saving fails if somebody else has changed the file.
import { batch, computed, signal, type Signal } from "@preact/signals";
import { type ApiError, errorOf, get, query, request } from "../api/client";
import type { MemoryFile } from "../api/types";
import { List } from "./list";
import { route } from "./route";
import { loggedOut } from "./session";

const here = (name: string): string => (route.value.view === "memory" ? (route.value.params.get(name) ?? "") : "");
export const scope = computed(() => here("scope"));
export const file = computed(() => here("file"));

export const scopes = new List<{ scope: string }>(() => "/v1/memory:scopes?limit=1000", 15_000);
const filesPath = computed(() => (scope.value ? "/v1/memory" + query({ scope: scope.value, limit: 1000 }) : ""));
export const files = new List<MemoryFile>(() => filesPath.value, 10_000);

const address = (of: string, path: string): string => "/v1/memory/" + path.split("/").map(encodeURIComponent).join("/") + query({ scope: of });

export const content: Signal<MemoryFile | null> = signal(null);
export const contentError: Signal<ApiError | null> = signal(null);
let reading = 0;

export async function readFile(of: string, path: string): Promise<void> {
  const mine = ++reading;
  try {
    const f = await get<MemoryFile>(address(of, path));
    if (mine !== reading) return;
    batch(() => {
      content.value = f;
      contentError.value = null;
    });
  } catch (e) {
    if (mine !== reading) return;
    contentError.value = errorOf(e);
    loggedOut(contentError.value);
  }
}

export function closeFile(): void {
  reading++;
  content.value = null;
  contentError.value = null;
}

// putFile writes a file if it still has a version; 0 is of a file that does not exist yet.
export async function putFile(of: string, path: string, text: string, version: number): Promise<void> {
  const f = await request<MemoryFile>("PUT", address(of, path), { body: { content: text }, match: `"${version}"` });
  if (scope.peek() === of && file.peek() === path) {
    reading++;
    content.value = { ...f, content: text };
  }
  void files.load();
  void scopes.load();
}

export async function deleteFile(of: string, f: MemoryFile): Promise<void> {
  await request("DELETE", address(of, f.path), { match: `"${f.version}"` });
  files.items.value = files.items.peek().filter((x) => x.path !== f.path);
}

export async function erase(of: string): Promise<void> {
  await request("DELETE", "/v1/memory" + query({ scope: of }));
  scopes.items.value = scopes.items.peek().filter((s) => s.scope !== of);
}
