import { Component, h, type ComponentType, type VNode } from "preact";

// memo draws a component again only if one of its properties is another one, or a signal
// that it has read.
export function memo<P extends object>(inner: (p: P) => VNode): ComponentType<P> {
  return class Memo extends Component<P> {
    override shouldComponentUpdate(next: Readonly<P>): boolean {
      const a = this.props as Record<string, unknown>;
      const b = next as Record<string, unknown>;
      for (const k in b) if (a[k] !== b[k]) return true;
      for (const k in a) if (!(k in b)) return true;
      return false;
    }
    override render(): VNode {
      return h(inner as ComponentType, this.props);
    }
  };
}
