// The views of the page. A view that is not needed at once is loaded when it is opened.
import type { ComponentType } from "preact";
import { RunView } from "./run/run";
import { RunsView } from "./runs/runs";

export interface View {
  title: string;
  // nav is its place in the row at the top; a view without is reached by links.
  nav?: boolean;
  show?: ComponentType;
  load?: () => Promise<ComponentType>;
}

export const views: Record<string, View> = {
  runs: { title: "Runs", nav: true, show: RunsView },
  run: { title: "Run", show: RunView },
};
