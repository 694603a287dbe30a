// Memory: what agents keep for later runs. Memories, the files of one, and one file.
import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import { type ApiError, errorOf } from "../../api/client";
import type { MemoryFile } from "../../api/types";
import { Dialog } from "../../parts/dialog";
import { diff } from "../../lib/diff";
import { Lines } from "../../parts/lines";
import { Empty, Loading, Problem } from "../../parts/states";
import { Ago } from "../../parts/time";
import { bytes, plural, shortId } from "../../lib/words";
import { closeFile, content, contentError, deleteFile, erase, file, files, putFile, readFile, scope, scopes } from "../../store/memory";
import { go, href, runHref } from "../../store/route";
import { loggedOut, may } from "../../store/session";
import { type Column, sorted } from "../../store/sort";
import { attempt, toast } from "../../store/toasts";
import { Listed, Table } from "./parts";

const origins: Record<string, string> = { web: "the web", agent: "another agent", tool: "a tool" };
const mayChange = (): boolean => may("author", "operator");

export function MemoryView(): JSX.Element {
  if (!scope.value) return <Scopes />;
  if (!file.value) return <Files key={scope.value} of={scope.value} />;
  return <One key={scope.value + "\n" + file.value} of={scope.value} path={file.value} />;
}

function Scopes(): JSX.Element {
  useEffect(() => scopes.open(), []);
  return (
    <section class="page-view narrow">
      <div class="view-head">
        <h1>Memory</h1>
      </div>
      <Listed
        list={scopes}
        what="memories"
        empty={
          <Empty title="No memory yet">
            <p>An agent with a tool of kind memory keeps text files for later runs. Each user, agent or tenant has a memory of its own.</p>
          </Empty>
        }
      >
        {(items) => (
          <Table label="Memories" head={["Memory", "Shared by"]} sorts={["scope"]}>
            {sorted(items, { scope: (s: { scope: string }) => s.scope }).map(({ scope: s }) => (
              <tr key={s} data-scope={s}>
                <th scope="row">
                  <a href={href("memory", "", { scope: s })}>{s}</a>
                </th>
                <td class="soft">{sharedBy(s)}</td>
              </tr>
            ))}
          </Table>
        )}
      </Listed>
    </section>
  );
}

function sharedBy(s: string): string {
  if (s === "tenant") return "all runs of the tenant";
  const agent = /^agent:(.*)$/.exec(s);
  if (agent) return `runs of the agent ${agent[1]}`;
  const m = /^metadata\.([^:]*):([^]*)$/.exec(s);
  return m ? `runs with ${m[1]}=${m[2]}` : "";
}

const columns: Record<string, Column<MemoryFile>> = {
  file: (f) => f.path,
  bytes: (f) => f.bytes,
  version: (f) => f.version,
  changed: (f) => Date.parse(f.updated_at),
};

// Writer says which run or person wrote the latest version, and what it had read.
function Writer({ f }: { f: MemoryFile }): JSX.Element {
  return (
    <>
      {f.run_id ? (
        <a class="mono" href={runHref(f.run_id)} title={f.run_id}>
          run {shortId(f.run_id)}
        </a>
      ) : (
        (f.updated_by ?? "")
      )}{" "}
      <span class="soft">
        <Ago at={f.updated_at} />
      </span>
    </>
  );
}

const Origin = ({ f }: { f: MemoryFile }): JSX.Element | null =>
  f.origin ? (
    <span class="chip" title="The writer had read this when it wrote the version: a stranger may have led to the text">
      after {origins[f.origin] ?? f.origin}
    </span>
  ) : null;

function Files({ of }: { of: string }): JSX.Element {
  useEffect(() => files.open(), [of]);
  const [ask, setAsk] = useState<"erase" | "new" | "">("");
  return (
    <section class="page-view narrow">
      <div class="view-head">
        <h1>
          <a href={href("memory")}>Memory</a> / {of}
        </h1>
        <span class="soft">{sharedBy(of)}</span>
        {mayChange() && (
          <span class="view-acts">
            <button type="button" class="small" onClick={() => setAsk("new")}>
              New file
            </button>
            <button type="button" class="small danger" onClick={() => setAsk("erase")}>
              Erase
            </button>
          </span>
        )}
      </div>
      <Listed list={files} what="files" empty={<Empty title="No file in this memory">{""}</Empty>}>
        {(items) => (
          <Table label="Files" head={["File", ["Size", "num"], ["Version", "num"], "Written by", "Origin"]} sorts={["file", "bytes", "version", "changed"]}>
            {sorted(items, columns).map((f) => (
              <tr key={f.path} data-file={f.path}>
                <th scope="row">
                  <a href={href("memory", "", { scope: of, file: f.path })}>{f.path}</a>
                </th>
                <td class="num">{bytes(f.bytes)}</td>
                <td class="num">{f.version}</td>
                <td>
                  <Writer f={f} />
                </td>
                <td>
                  <Origin f={f} />
                </td>
              </tr>
            ))}
          </Table>
        )}
      </Listed>
      {ask === "erase" && <Erase of={of} close={() => setAsk("")} />}
      {ask === "new" && <NewFile of={of} close={() => setAsk("")} />}
    </section>
  );
}

function Erase({ of, close }: { of: string; close: () => void }): JSX.Element {
  const [typed, setTyped] = useState("");
  const act = async (e: SubmitEvent): Promise<void> => {
    e.preventDefault();
    if (await attempt(() => erase(of), `${of} is erased.`)) go(href("memory"));
  };
  return (
    <Dialog title={`Erase ${of}?`} close={close}>
      <form onSubmit={(e) => void act(e)}>
        <p>
          {files.items.value.length > 0 ? `${plural(files.items.value.length, "file")}${files.cursor.value ? " and more" : ""} of this memory ` : "This memory "}
          will be deleted for {sharedBy(of) || "all its runs"}. No one can bring this back.
        </p>
        <label>
          Write {of} to confirm
          <input name="confirm" value={typed} autofocus autocomplete="off" onInput={(e) => setTyped(e.currentTarget.value)} />
        </label>
        <div class="buttons">
          <button type="button" onClick={close}>
            Keep it
          </button>
          <button type="submit" class="danger" disabled={typed !== of}>
            Erase the memory
          </button>
        </div>
      </form>
    </Dialog>
  );
}

function NewFile({ of, close }: { of: string; close: () => void }): JSX.Element {
  const [path, setPath] = useState("");
  const [text, setText] = useState("");
  const act = async (e: SubmitEvent): Promise<void> => {
    e.preventDefault();
    if (await attempt(() => putFile(of, path, text, 0), `${path} is saved.`)) close();
  };
  return (
    <Dialog title={`New file in ${of}`} close={close}>
      <form onSubmit={(e) => void act(e)}>
        <label>
          Path
          <input name="path" required value={path} autofocus onInput={(e) => setPath(e.currentTarget.value)} />
        </label>
        <label>
          Text
          <textarea name="text" rows={8} value={text} onInput={(e) => setText(e.currentTarget.value)} />
        </label>
        <div class="buttons">
          <button type="button" onClick={close}>
            Back
          </button>
          <button type="submit" class="primary">
            Save
          </button>
        </div>
      </form>
    </Dialog>
  );
}

function One({ of, path }: { of: string; path: string }): JSX.Element {
  useEffect(() => {
    void readFile(of, path);
    return closeFile;
  }, [of, path]);
  const f = content.value;
  const error = contentError.value;
  if (!f) return error ? <Problem error={error} again={() => void readFile(of, path)} /> : <Loading what={path} />;
  return <Text key={f.path} of={of} f={f} />;
}

// Text shows a file and edits it. Saving names the version that the page has read: if somebody else has changed the
// file since, the page saves nothing and shows both texts.
function Text({ of, f }: { of: string; f: MemoryFile }): JSX.Element {
  const [base, setBase] = useState(f); // what the text was edited from
  const [text, setText] = useState<string | null>(null); // null: not edited
  const [conflict, setConflict] = useState<ApiError | null>(null);
  const [removes, setRemoves] = useState(false);
  const [busy, setBusy] = useState(false);
  const lost = (e: unknown): void => {
    const err = errorOf(e);
    loggedOut(err);
    if (err.code !== "memory_changed") return toast(err.message, "error");
    setConflict(err);
    void readFile(of, f.path);
  };
  const save = async (): Promise<void> => {
    setBusy(true);
    try {
      await putFile(of, f.path, text!, base.version);
      toast(`${f.path} is saved.`);
      setText(null);
      setConflict(null);
    } catch (e) {
      lost(e);
    } finally {
      setBusy(false);
    }
  };
  const remove = async (): Promise<void> => {
    setRemoves(false);
    try {
      await deleteFile(of, f);
      toast(`${f.path} is deleted.`);
      go(href("memory", "", { scope: of }));
    } catch (e) {
      lost(e);
    }
  };
  const gone = contentError.value?.status === 404;
  const theirs = !gone && f.version !== base.version && text !== null;
  return (
    <section class="page-view narrow">
      <div class="view-head">
        <h1>
          <a href={href("memory")}>Memory</a> / <a href={href("memory", "", { scope: of })}>{of}</a> / {f.path}
        </h1>
        {mayChange() && text === null && (
          <span class="view-acts">
            <button
              type="button"
              class="small"
              onClick={() => {
                setBase(f);
                setText(f.content ?? "");
              }}
            >
              Edit
            </button>
            <button type="button" class="small danger" onClick={() => setRemoves(true)}>
              Delete
            </button>
          </span>
        )}
      </div>
      <p class="batch-facts memory-facts">
        <span>version {f.version}</span>
        <span>
          written by <Writer f={f} />
        </span>
        <Origin f={f} />
        <span class="soft">{bytes(f.bytes)}</span>
      </p>
      {conflict && (
        <div class="stale conflict" role="alert">
          <p>
            <strong>Nothing was changed.</strong> {conflict.message}.
          </p>
          {theirs ? (
            <>
              <p>The lines that differ: − what the file has now, + your text.</p>
              <Lines lines={diff(f.content ?? "", text!)} />
              <div class="buttons">
                <button
                  type="button"
                  onClick={() => {
                    setText(null);
                    setConflict(null);
                  }}
                >
                  Drop my text
                </button>
                <button
                  type="button"
                  onClick={() => {
                    setBase(f);
                    setConflict(null);
                  }}
                >
                  Edit version {f.version} with my text
                </button>
              </div>
            </>
          ) : gone ? (
            <div class="buttons">
              <a class="button" href={href("memory", "", { scope: of })}>
                To the other files
              </a>
              {text !== null && (
                <button
                  type="button"
                  onClick={() => {
                    setBase({ ...f, version: 0 });
                    setConflict(null);
                  }}
                >
                  Keep my text for a new file
                </button>
              )}
            </div>
          ) : (
            <p>
              What stands below is version {f.version}.{" "}
              <button type="button" class="small" onClick={() => setConflict(null)}>
                I have seen it
              </button>
            </p>
          )}
        </div>
      )}
      {text === null ? (
        <pre class="memory-text">{f.content}</pre>
      ) : (
        <form
          class="memory-edit"
          onSubmit={(e) => {
            e.preventDefault();
            void save();
          }}
        >
          <label>
            {base.version ? `Text of version ${base.version}` : "Text of a new file"}
            <textarea name="text" class="mono" rows={Math.min(30, Math.max(8, text.split("\n").length + 1))} spellcheck={false} value={text} onInput={(e) => setText(e.currentTarget.value)} />
          </label>
          <div class="buttons">
            <button
              type="button"
              onClick={() => {
                setText(null);
                setConflict(null);
              }}
            >
              Back
            </button>
            <button type="submit" class="primary" disabled={busy || conflict !== null}>
              Save
            </button>
          </div>
        </form>
      )}
      {removes && (
        <Dialog title={`Delete ${f.path}?`} close={() => setRemoves(false)}>
          <p>Later runs do not find version {f.version} of it any more. If a run changes it first, it stays.</p>
          <div class="buttons">
            <button type="button" onClick={() => setRemoves(false)}>
              Keep it
            </button>
            <button type="button" class="danger" onClick={() => void remove()}>
              Delete the file
            </button>
          </div>
        </Dialog>
      )}
    </section>
  );
}
