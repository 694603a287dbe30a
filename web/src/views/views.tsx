// The views of the page. A view that is not needed at once is loaded when it is opened.
import type { ComponentType } from "preact";
import { RunView } from "./run/run";
import { RunsView } from "./runs/runs";

export interface View {
  title: string;
  // nav is its place in the row at the top; a view without is reached by links.
  nav?: boolean;
  // jump: it is a choice of the palette, as those of the row are.
  jump?: boolean;
  show?: ComponentType;
  load?: () => Promise<ComponentType>;
}

export const views: Record<string, View> = {
  runs: { title: "Runs", nav: true, show: RunsView },
  run: { title: "Run", show: RunView },
  agents: { title: "Agents", nav: true, load: () => import("./agents/agents").then((m) => m.AgentsView) },
  "new-agent": { title: "New agent", load: () => import("./agents/workbench").then((m) => m.NewAgentView) },
  batches: { title: "Batches", nav: true, load: () => import("./site/batches").then((m) => m.BatchesView) },
  figures: { title: "Figures", jump: true, load: () => import("./figures/figures").then((m) => m.FiguresView) },
  triggers: { title: "Triggers", jump: true, load: () => import("./site/triggers").then((m) => m.TriggersView) },
  hooks: { title: "Hooks", jump: true, load: () => import("./site/hooks").then((m) => m.HooksView) },
  memory: { title: "Memory", jump: true, load: () => import("./site/memory").then((m) => m.MemoryView) },
  schedules: { title: "Schedules", jump: true, load: () => import("./site/schedules").then((m) => m.SchedulesView) },
  evaluations: { title: "Evaluations", jump: true, load: () => import("./site/evaluations").then((m) => m.EvaluationsView) },
  workers: { title: "Workers", nav: true, load: () => import("./site/workers").then((m) => m.WorkersView) },
  dead: { title: "Dead letters", nav: true, load: () => import("./site/dead").then((m) => m.DeadView) },
  access: { title: "Access", nav: true, load: () => import("./site/access").then((m) => m.AccessView) },
};
