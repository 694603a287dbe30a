// The editor of definitions. It is loaded when it is opened, and lives in a shadow root: there
// its styles are constructed sheets, which the policy of the page allows.
import { autocompletion, closeBrackets, closeBracketsKeymap, completionKeymap, type Completion, type CompletionContext, type CompletionResult } from "@codemirror/autocomplete";
import { defaultKeymap, history, historyKeymap } from "@codemirror/commands";
import { yaml } from "@codemirror/lang-yaml";
import { bracketMatching, HighlightStyle, indentOnInput, syntaxHighlighting } from "@codemirror/language";
import { type Diagnostic, lintGutter, lintKeymap, setDiagnostics } from "@codemirror/lint";
import { EditorState } from "@codemirror/state";
import { drawSelection, EditorView, highlightActiveLine, highlightActiveLineGutter, keymap, lineNumbers } from "@codemirror/view";
import { tags as t } from "@lezer/highlight";
import type { Fault } from "../../api/client";
import { keys, placeOf } from "./keys";

const colours = HighlightStyle.define([
  { tag: [t.propertyName, t.definition(t.propertyName)], color: "var(--s-running)" },
  { tag: [t.string, t.special(t.string)], color: "var(--s-completed)" },
  { tag: [t.number, t.bool, t.null, t.keyword], color: "var(--b-child)" },
  { tag: [t.comment, t.lineComment], color: "var(--soft)", fontStyle: "italic" },
  { tag: [t.punctuation, t.separator, t.bracket], color: "var(--soft)" },
]);

const look = EditorView.theme({
  "&": { height: "100%", color: "var(--text)", backgroundColor: "var(--bg)", fontSize: "13px" },
  "&.cm-focused": { outline: "none" },
  ".cm-scroller": { fontFamily: "var(--mono)", lineHeight: "20px", overflow: "auto" },
  ".cm-content": { caretColor: "var(--text)", padding: "8px 0" },
  ".cm-cursor, .cm-dropCursor": { borderLeftColor: "var(--text)" },
  "&.cm-focused > .cm-scroller > .cm-selectionLayer .cm-selectionBackground, .cm-selectionBackground": { backgroundColor: "color-mix(in srgb, var(--accent) 28%, transparent)" },
  ".cm-gutters": { backgroundColor: "var(--bg-2)", color: "var(--soft)", border: "none", borderRight: "1px solid var(--line)" },
  ".cm-activeLine": { backgroundColor: "color-mix(in srgb, var(--bg-3) 45%, transparent)" },
  ".cm-activeLineGutter": { backgroundColor: "var(--bg-3)" },
  ".cm-tooltip": { backgroundColor: "var(--bg)", color: "var(--text)", border: "1px solid var(--line)", borderRadius: "6px", boxShadow: "var(--shadow)" },
  ".cm-tooltip.cm-tooltip-autocomplete > ul > li[aria-selected]": { backgroundColor: "var(--bg-3)", color: "var(--text)" },
  ".cm-completionDetail": { color: "var(--soft)", fontStyle: "normal", marginLeft: "1em" },
  ".cm-diagnostic": { fontFamily: "var(--sans)", maxWidth: "70ch" },
  ".cm-diagnostic-error": { borderLeftColor: "var(--s-failed)" },
  ".cm-diagnostic-warning": { borderLeftColor: "var(--s-waiting)" },
  ".cm-lintRange-warning": { backgroundImage: "none", textDecoration: "underline wavy var(--s-waiting)", textUnderlineOffset: "3px" },
  // The marks that come with the library are images, which the policy of the page refuses.
  ".cm-lint-marker-error, .cm-lint-marker-warning": { content: "normal", lineHeight: "1em", fontWeight: "700" },
  ".cm-lint-marker-error": { color: "var(--s-failed)" },
  ".cm-lint-marker-error::before": { content: '"✕"' },
  ".cm-lint-marker-warning": { color: "var(--s-waiting)" },
  ".cm-lint-marker-warning::before": { content: '"⚠"' },
  ".cm-lintRange-error": { backgroundImage: "none", textDecoration: "underline wavy var(--s-failed)", textUnderlineOffset: "3px" },
});

function complete(c: CompletionContext): CompletionResult | null {
  const line = c.state.doc.lineAt(c.pos);
  const before = line.text.slice(0, c.pos - line.from);
  const above: string[] = [];
  for (let n = 1; n < line.number; n++) above.push(c.state.doc.line(n).text);
  const m = /^(\s*(?:- )*)([\w-]*)(?:(:\s*)(\S*))?$/.exec(before);
  if (!m) return null;
  const [, head, word, colon, value] = m;
  const known = keys[placeOf(above, head!.length)];
  if (!known) return null;
  if (colon !== undefined) {
    const values = known.find((k) => k.name === word)?.values;
    return values && colon.length > 1 ? { from: c.pos - value!.length, options: values.map((v) => ({ label: v, type: "enum" })) } : null;
  }
  if (!word && !c.explicit) return null;
  const options: Completion[] = known.map((k) => ({ label: k.name, detail: k.about, apply: k.name + ": ", type: "property" }));
  return { from: c.pos - word!.length, options, validFor: /^[\w-]*$/ };
}

export interface Editor {
  setText: (text: string) => void;
  setFaults: (faults: Fault[]) => void;
  focus: (line?: number) => void;
  close: () => void;
}

export function edit(host: HTMLElement, text: string, on: { change: (text: string) => void; run: () => void; save: () => void }): Editor {
  const root = host.shadowRoot ?? host.attachShadow({ mode: "open" });
  const act = (f: () => void) => (): boolean => {
    f();
    return true;
  };
  const view = new EditorView({
    root,
    parent: root,
    state: EditorState.create({
      doc: text,
      extensions: [
        keymap.of([
          { key: "Mod-Enter", run: act(on.run) },
          { key: "Mod-s", run: act(on.save), preventDefault: true },
        ]),
        lineNumbers(),
        lintGutter(),
        history(),
        drawSelection(),
        highlightActiveLine(),
        highlightActiveLineGutter(),
        bracketMatching(),
        closeBrackets(),
        indentOnInput(),
        yaml(),
        syntaxHighlighting(colours),
        autocompletion({ override: [complete], icons: false }),
        keymap.of([...closeBracketsKeymap, ...defaultKeymap, ...historyKeymap, ...completionKeymap, ...lintKeymap]),
        look,
        EditorState.tabSize.of(2),
        EditorView.contentAttributes.of({ "aria-label": "Definition", spellcheck: "false", tabindex: "0" }),
        EditorView.updateListener.of((u) => {
          if (u.docChanged) on.change(u.state.doc.toString());
        }),
      ],
    }),
  });
  return {
    setText: (next) => {
      if (next !== view.state.doc.toString()) view.dispatch({ changes: { from: 0, to: view.state.doc.length, insert: next } });
    },
    setFaults: (faults) => {
      const found: Diagnostic[] = faults.map((f) => {
        const line = view.state.doc.line(Math.min(Math.max(f.line ?? 1, 1), view.state.doc.lines));
        const from = Math.min(line.from + Math.max((f.column ?? 1) - 1, 0), line.to);
        const word = /^[\w"-]+/.exec(line.text.slice(from - line.from))?.[0].length ?? 0;
        return { from, to: word ? from + word : line.to, severity: f.warning ? "warning" : "error", message: (f.at ? f.at + ": " : "") + f.detail };
      });
      view.dispatch(setDiagnostics(view.state, found));
    },
    focus: (line) => {
      if (line) {
        const l = view.state.doc.line(Math.min(Math.max(line, 1), view.state.doc.lines));
        view.dispatch({ selection: { anchor: l.from }, effects: EditorView.scrollIntoView(l.from, { y: "center" }) });
      }
      view.focus();
    },
    close: () => view.destroy(),
  };
}
