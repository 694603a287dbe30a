"""A tool in Python: agents find it by its name while this program runs."""

from typing import Annotated

from turnpike import Context, ToolError, serve, tool


@tool
def greet(name: Annotated[str, "who is greeted"], context: Context, times: int = 1) -> str:
    """Greets a person. Use it for everyone who arrives."""
    if times > 3:
        raise ToolError("At most 3 greetings: more would be odd.")
    context.progress(f"greets {name}")
    return f"Hello, {name}! " * times


serve(greet)
