"""Client of Turnpike, which runs LLM agents as events on a queue: submit runs, follow them, serve tools.

    from turnpike import Client, serve, tool

    @tool
    def greet(name: str) -> str:
        \"\"\"Greets a person.\"\"\"
        return f"Hello, {name}!"

    serve(greet)                                     # a program that agents call
    print(Client().submit("greeter", "Hi").result()) # another one, which runs an agent
"""

from .client import Client
from .errors import (
    ArgumentsError,
    Cancelled,
    Conflict,
    Ended,
    Forbidden,
    Full,
    Invalid,
    NATSError,
    NotFound,
    NotWaiting,
    OutputError,
    Problem,
    RunFailed,
    Stale,
    ToolError,
    TurnpikeError,
    Unauthenticated,
    Unavailable,
)
from .nats import Login
from .run import Batch, Run
from .schema import Field
from .serve import serve, serve_until
from .tools import Context, Image, Result, Tool, tool
from .types import Agent, BatchInfo, BatchItem, Event, Limits, Message, RunInfo, Submission, Token, Usage, Webhook

__all__ = [
    "Agent", "ArgumentsError", "Batch", "BatchInfo", "BatchItem", "Cancelled", "Client", "Conflict", "Context", "Ended", "Event", "Field",
    "Forbidden", "Full", "Image", "Invalid", "Limits", "Login", "Message", "NATSError", "NotFound", "NotWaiting", "OutputError", "Problem",
    "Result", "Run", "RunFailed", "RunInfo", "Stale", "Submission", "Token", "Tool", "ToolError", "TurnpikeError", "Unauthenticated",
    "Unavailable", "Usage", "Webhook", "serve", "serve_until", "tool",
]
