// Names of steps of time. Hours are in the viewer's zone, days are those of UTC, as they are counted.
import type { Span } from "../../lib/figures";

const hours = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit" });
const days = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short", timeZone: "UTC" });

export const stepName = (s: Span, at: number): string => (s.step === "hour" ? hours : days).format(s.from + at * s.every);
