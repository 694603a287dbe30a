import { render } from "preact";
import { loadSession } from "./store/session";
import "./parts/text";
import "./store/theme";
import { Frame } from "./views/frame/frame";

void loadSession();
render(<Frame />, document.getElementById("app")!);
