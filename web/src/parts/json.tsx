// JSON, folded, with types, sizes and a way to copy.
import type { JSX } from "preact";
import { useState } from "preact/hooks";
import type { JSONValue } from "../api/types";
import { Copy } from "./copy";
import { Fold } from "./fold";
import { escaped } from "../lib/visible";
import { bytes } from "../lib/words";

const most = 200; // entries of one object or list that are shown at once
const longText = 2000;

export function JSONTree({ value, open = 1 }: { value: JSONValue; open?: number }): JSX.Element {
  const text = escaped(JSON.stringify(value, null, 2) ?? "null");
  return (
    <div class="json">
      <div class="json-tools">
        {text.length > 200 && <span class="soft">{bytes(text.length)}</span>}
        <Copy text={text} label="Copy JSON" />
      </div>
      <Node value={value} depth={0} open={open} />
    </div>
  );
}

function Node({ name, value, depth, open }: { name?: string; value: JSONValue; depth: number; open: number }): JSX.Element {
  const [all, setAll] = useState(false);
  const key = name === undefined ? null : <span class="json-key">{name}: </span>;
  if (value === null || typeof value !== "object") {
    return (
      <div class="json-leaf">
        {key}
        <Leaf value={value} />
      </div>
    );
  }
  const list = Array.isArray(value);
  const entries = list ? value.map((v, i) => [String(i), v] as const) : Object.entries(value);
  if (!entries.length) {
    return (
      <div class="json-leaf">
        {key}
        <span class="soft">{list ? "[]" : "{}"}</span>
      </div>
    );
  }
  const shown = all ? entries : entries.slice(0, most);
  return (
    <Fold
      open={depth < open}
      summary={
        <>
          {key}
          <span class="soft">{list ? `[${entries.length}]` : `{${entries.length}}`}</span>
        </>
      }
    >
      {() => (
        <div class="json-in">
          {shown.map(([k, v]) => (
            <Node key={k} name={k} value={v} depth={depth + 1} open={open} />
          ))}
          {shown.length < entries.length && (
            <button type="button" class="small quiet" onClick={() => setAll(true)}>
              {entries.length - shown.length} more
            </button>
          )}
        </div>
      )}
    </Fold>
  );
}

function Leaf({ value }: { value: null | boolean | number | string }): JSX.Element {
  const [all, setAll] = useState(false);
  if (typeof value !== "string") return <span class={"json-" + (value === null ? "null" : typeof value)}>{String(value)}</span>;
  const long = value.length > longText && !all;
  return (
    <span class="json-string">
      {long ? value.slice(0, longText) : value}
      {long && (
        <button type="button" class="small quiet" onClick={() => setAll(true)}>
          … {bytes(value.length)}, all of it
        </button>
      )}
    </span>
  );
}

// parsed is the JSON in a text, or undefined where it is none worth folding.
export function parsed(text: string): JSONValue | undefined {
  if (!/^\s*[[{]/.test(text) || text.length > 2e6) return undefined;
  try {
    return JSON.parse(text) as JSONValue;
  } catch {
    return undefined;
  }
}
