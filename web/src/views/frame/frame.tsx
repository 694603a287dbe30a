import type { ComponentType, JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import { Empty, Loading, Problem } from "../../parts/states";
import { errorOf } from "../../api/client";
import { Boundary } from "../../parts/boundary";
import { Icon } from "../../parts/icon";
import "../../parts/submit";
import { liveState } from "../../store/live";
import { href, route } from "../../store/route";
import { answers, identity, loadSession, mustChoose, mustLogIn, ready, session, sessionError } from "../../store/session";
import { toggleTheme } from "../../store/theme";
import { Login } from "../login/login";
import { views } from "../views";
import { LiveDot } from "./live";
import { openPalette, Palette } from "./palette";
import { Shortcuts } from "./shortcuts";
import { Toasts } from "./toasts";
import { Waiting } from "./waiting";
import { ChooseTenant, Who } from "./who";

export function Frame(): JSX.Element {
  const here = route.value.view;
  const shown = here === "run" ? "runs" : here;
  const title = views[here]?.title ?? "Not here";
  useEffect(() => {
    document.title = (here === "run" ? `…${route.value.id.slice(-10)} · Run` : title) + " · Turnpike";
  }, [here, route.value.id, title]);
  // On a narrow screen the row of views scrolls.
  useEffect(() => document.querySelector(".top nav [aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" }), [shown, ready.value]);
  return (
    <>
      <a class="skip" href="#main" onClick={skip}>
        Skip to the content
      </a>
      <header class="top">
        <a class="brand" href={href("runs")}>
          Turnpike
        </a>
        <nav aria-label="Views">
          {Object.entries(views)
            .filter(([, v]) => v.nav)
            .map(([name, v]) => (
              <a key={name} href={href(name)} aria-current={name === shown ? "page" : undefined}>
                {v.title}
              </a>
            ))}
        </nav>
        <span class="grow" />
        {ready.value && (
          <button type="button" class="search-open" onClick={openPalette}>
            <Icon name="search" />
            <span class="wide-only">search or jump</span>
            <kbd class="wide-only">/</kbd>
            <span class="visually-hidden">Open search</span>
          </button>
        )}
        {ready.value && <LiveDot />}
        <Who />
        <button type="button" class="quiet" onClick={toggleTheme} aria-label="Switch between light and dark" title="Light or dark">
          <Icon name="theme" />
        </button>
      </header>
      <Waiting />
      <main id="main" tabIndex={-1}>
        <Content />
      </main>
      <Palette />
      <Shortcuts />
      <Toasts />
    </>
  );
}

function skip(e: Event): void {
  e.preventDefault();
  document.getElementById("main")?.focus();
}

function Content(): JSX.Element {
  if (!session.value) {
    if (sessionError.value) return <Problem error={sessionError.value} again={() => void loadSession()} />;
    return <Loading what="the session" />;
  }
  if (mustLogIn.value) return <Login />;
  if (mustChoose.value) return <ChooseTenant />;
  if (identity.value && identity.value.roles.length === 0)
    return <Empty title="No roles here">You have no role in the tenant {identity.value.tenant}. Ask an administrator, or choose another one.</Empty>;
  return (
    <Boundary at={route.value.view + " " + route.value.id}>
      <Current name={route.value.view} />
    </Boundary>
  );
}

function Current({ name }: { name: string }): JSX.Element {
  const [loaded, setLoaded] = useState<Record<string, ComponentType>>({});
  const [failed, setFailed] = useState("");
  const [down, setDown] = useState(false);
  const view = views[name];
  useEffect(() => {
    if (!view?.load || loaded[name]) return;
    setFailed("");
    setDown(false);
    view.load().then(
      (c) => setLoaded((l) => ({ ...l, [name]: c })),
      async (e: unknown) => {
        setDown(!(await answers()));
        setFailed(errorOf(e).message);
      },
    );
  }, [name]);
  // After a failed import a browser does not try that module again, so the page reloads.
  useEffect(() => {
    if (down && liveState.value === "open") void answers().then((up) => up && location.reload());
  }, [down, liveState.value]);
  if (!view)
    return (
      <Empty title="There is no such view">
        <a href={href("runs")}>To the runs</a>
      </Empty>
    );
  const Show = view.show ?? loaded[name];
  if (Show) return <Show />;
  if (!failed) return <Loading what={view.title} />;
  if (down)
    return (
      <Empty title="The gateway does not answer">
        <p class="soft">This part of the page has not loaded yet. It loads as soon as the gateway answers.</p>
      </Empty>
    );
  return (
    <Empty title="This part of the page did not load">
      <p class="soft">{failed}</p>
      <p>The gateway may have been upgraded since you opened this page. Reload it.</p>
      <button type="button" onClick={() => location.reload()}>
        Load the page anew
      </button>
    </Empty>
  );
}
