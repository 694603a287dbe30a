// The shortcuts, which ? shows.
import type { JSX } from "preact";
import { Dialog } from "../../parts/dialog";
import { letters, shortcut, shown, typing } from "../../store/shortcuts";

addEventListener("keydown", (e) => {
  if (e.key !== "?" || !shortcut(e) || typing(e)) return;
  e.preventDefault();
  shown.value = true;
});

const keys: [string, string][] = [
  ["Ctrl-K, /", "search, or jump to a run, an agent, a view"],
  ["j, k, ↓, ↑", "next, previous run"],
  ["Enter, o", "open the run"],
  ["a, d", "ask whether to approve or deny the waiting call"],
  ["x", "select the run"],
  ["Ctrl-Enter", "send the text that you write"],
  ["Escape", "clear the selection, close what is open"],
  ["?", "show these shortcuts"],
];

export function Shortcuts(): JSX.Element | null {
  if (!shown.value) return null;
  const close = (): void => {
    shown.value = false;
  };
  return (
    <Dialog title="Shortcuts" close={close}>
      <table class="list">
        <tbody>
          {keys.map(([k, does]) => (
            <tr key={k}>
              <th scope="row">
                <kbd>{k}</kbd>
              </th>
              <td>{does}</td>
            </tr>
          ))}
        </tbody>
      </table>
      <label>
        <input
          type="checkbox"
          name="letters"
          checked={letters.value}
          onChange={(e) => {
            letters.value = (e.target as HTMLInputElement).checked;
          }}
        />{" "}
        Shortcuts of one character, in this browser
      </label>
      <div class="buttons">
        <button type="button" onClick={close} autofocus>
          Close
        </button>
      </div>
    </Dialog>
  );
}
