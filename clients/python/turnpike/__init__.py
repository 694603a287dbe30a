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
    AgentVersion,
    BatchInfo,
    BatchItem,
    DeadLetter,
    Evaluation,
    EvaluationReport,
    EvaluationResult,
    EvaluationSummary,
    EvaluationVersion,
    Event,
    File,
    Hook,
    HookSettings,
    Limits,
    MemoryFile,
    Message,
    PendingEvent,
    RunFilter,
    RunInfo,
    ScheduleInfo,
    ScheduleSettings,
    Submission,
    Token,
    Transcript,
    TriggerInfo,
    TriggerSettings,
    Usage,
    Webhook,
    WebhookTest,
)

__all__ = [
    "Agent", "AgentVersion", "ArgumentsError", "Batch", "BatchInfo", "BatchItem", "Busy", "Cancelled", "Changed", "Client", "Conflict",
    "Context", "DeadLetter", "EffectsStarted", "Ended", "Evaluation", "EvaluationReport", "EvaluationResult", "EvaluationSummary",
    "EvaluationVersion", "Event", "Field", "File", "Forbidden", "Full", "Hook", "HookSettings", "Image", "Invalid", "Limits", "Login",
    "Memory", "MemoryFile", "Message", "NATSError", "NotFound", "NotWaiting", "OutputError", "PendingEvent", "Problem", "Result",
    "ResultFile", "Run", "RunFailed", "RunFilter", "RunInfo", "Schedule", "ScheduleInfo", "ScheduleSettings", "Stale", "Submission",
    "Token", "Tool", "ToolError", "Transcript", "Trigger", "TriggerInfo", "TriggerSettings", "TurnpikeError", "Unauthenticated",
    "Unavailable", "Usage", "Webhook", "WebhookTest", "serve", "serve_until", "tool",
]
