// What is folded is drawn when it is unfolded first: most of it nobody ever opens.
import type { ComponentChildren, DetailsHTMLAttributes, JSX } from "preact";
import { useState } from "preact/hooks";

interface Props extends Omit<DetailsHTMLAttributes<HTMLDetailsElement>, "children" | "open"> {
  summary: ComponentChildren;
  open?: boolean; // at first
  children: () => ComponentChildren;
}

export function Fold({ summary, open = false, children, ...rest }: Props): JSX.Element {
  const [drawn, setDrawn] = useState(open);
  return (
    <details {...rest} open={open} onToggle={(e) => e.currentTarget.open && setDrawn(true)}>
      <summary>{summary}</summary>
      {drawn && children()}
    </details>
  );
}
