// All text that the page draws shows characters that hide or reorder text: whoever wrote a name, it reads as it is.
import { options, type VNode } from "preact";
import { show } from "../lib/visible";

const before = options.vnode;
options.vnode = (node: VNode): void => {
  show(node);
  before?.(node);
};
