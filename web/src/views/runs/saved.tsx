import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { Dialog } from "../../parts/dialog";
import { href, route } from "../../store/route";
import { forget, save, saved } from "../../store/saved";

// SavedViews opens the views that have a name, and names the one that is open.
export function SavedViews(): JSX.Element {
  const [open, setOpen] = useState(false);
  const close = (): void => setOpen(false);
  return (
    <>
      <button type="button" onClick={() => setOpen(true)}>
        Views
      </button>
      {open && (
        <Dialog title="Views" close={close}>
          <Named close={close} />
          <NameIt close={close} />
          <div class="buttons">
            <button type="button" onClick={close}>
              Close
            </button>
          </div>
        </Dialog>
      )}
    </>
  );
}

function Named({ close }: { close: () => void }): JSX.Element {
  if (!saved.value.length) return <p class="soft">No view has a name yet. This browser keeps them; a link to a view works anywhere.</p>;
  return (
    <ul class="plain saved-views">
      {saved.value.map((v) => (
        <li key={v.name}>
          <a href={href("runs", "", new URLSearchParams(v.params))} onClick={close}>
            {v.name}
          </a>
          <button type="button" class="small quiet" aria-label={`Remove the view ${v.name}`} onClick={() => forget(v.name)}>
            Remove
          </button>
        </li>
      ))}
    </ul>
  );
}

function NameIt({ close }: { close: () => void }): JSX.Element | null {
  const params = route.value.params.toString();
  if (!params) return <p class="soft">To name a view, choose filters or an order first.</p>;
  const submit = (e: SubmitEvent): void => {
    e.preventDefault();
    const name = (e.target as HTMLFormElement).elements.namedItem("name") as HTMLInputElement;
    if (!name.value.trim()) return;
    save(name.value.trim(), params);
    close();
  };
  return (
    <form onSubmit={submit}>
      <label>
        Name of this view
        <input name="name" maxLength={60} required autofocus />
      </label>
      <button type="submit" class="primary">
        Save
      </button>
    </form>
  );
}
