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
    Busy,
    Cancelled,
    Changed,
    Conflict,
    EffectsStarted,
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
from .resources import Memory, Schedule, Trigger
from .run import Batch, Run
from .schema import Field
from .serve import serve, serve_until
from .tools import Context, Image, Result, ResultFile, Tool, tool
from .types import (
    Agent,
    BatchInfo,
    BatchItem,
    DeadLetter,
    Event,
    File,
    Hook,
    HookSettings,
    Limits,
    MemoryFile,
    Message,
    PendingEvent,
    RunInfo,
    ScheduleInfo,
    ScheduleSettings,
    Submission,
    Token,
    TriggerInfo,
    TriggerSettings,
    Usage,
    Webhook,
)

__all__ = [
    "Agent", "ArgumentsError", "Batch", "BatchInfo", "BatchItem", "Busy", "Cancelled", "Changed", "Client", "Conflict", "Context",
    "DeadLetter", "EffectsStarted", "Ended", "Event", "Field", "File", "Forbidden", "Full", "Hook", "HookSettings", "Image", "Invalid",
    "Limits", "Login", "Memory", "MemoryFile", "Message", "NATSError", "NotFound", "NotWaiting", "OutputError", "PendingEvent",
    "Problem", "Result", "ResultFile", "Run", "RunFailed", "RunInfo", "Schedule", "ScheduleInfo", "ScheduleSettings", "Stale", "Submission", "Token", "Tool",
    "ToolError", "Trigger", "TriggerInfo", "TriggerSettings", "TurnpikeError", "Unauthenticated", "Unavailable", "Usage", "Webhook",
    "serve", "serve_until", "tool",
]
