import { type ComponentChildren, Component } from "preact";
import { Empty } from "./states";

interface Props {
  at: string; // the route of the view: a new route resets the error
  children: ComponentChildren;
}

// Boundary shows a way on when what it holds fails to draw. The rest of the page goes on.
export class Boundary extends Component<Props, { failed: unknown }> {
  override state = { failed: null as unknown };

  override componentDidCatch(error: unknown): void {
    console.error(error);
    this.setState({ failed: error });
  }

  override componentDidUpdate(before: Props): void {
    if (this.state.failed && before.at !== this.props.at) this.setState({ failed: null });
  }

  render(): ComponentChildren {
    const { failed } = this.state;
    if (!failed) return this.props.children;
    return (
      <Empty title="This view failed">
        <p class="soft">{failed instanceof Error ? failed.message : String(failed)}</p>
        <p>No run was changed. Open another view, or try again.</p>
        <p>
          <button type="button" onClick={() => this.setState({ failed: null })}>
            Try again
          </button>{" "}
          <button type="button" onClick={() => location.reload()}>
            Load the page anew
          </button>
        </p>
      </Empty>
    );
  }
}
