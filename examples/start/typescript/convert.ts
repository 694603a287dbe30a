// A tool: agents call it by its name while this program runs.
import { serve, tool, ToolError } from "./turnpike/index.js";

const meters: Record<string, number> = { m: 1, km: 1000, ft: 0.3048, mi: 1609.344 };

function size(unit: string): number {
  const found = meters[unit];
  if (found === undefined) throw new ToolError(`Unknown unit "${unit}": use m, km, ft or mi.`);
  return found;
}

const convert = tool({
  name: "convert",
  description: "Converts a length to another unit.",
  input: {
    type: "object",
    properties: {
      value: { type: "number" },
      unit: { type: "string", description: "of the value: m, km, ft or mi" },
      to: { type: "string", description: "unit to convert to" },
    },
    required: ["value", "unit", "to"],
  },
  run: ({ value, unit, to }) => ({ value: Number(((value * size(unit)) / size(to)).toPrecision(10)), unit: to }),
});

await serve([convert]);
