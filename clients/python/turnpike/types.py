"""The shapes of the HTTP API's answers. Times are RFC 3339 texts in UTC."""

from __future__ import annotations

from typing import Any, Literal, NotRequired, Required, TypedDict

Status = Literal["queued", "running", "waiting", "completed", "incomplete", "failed", "cancelled"]
Priority = Literal["high", "normal", "low"]
Mode = Literal["enqueue", "interrupt", "rollback", "reject"]
TERMINAL: frozenset[str] = frozenset({"completed", "incomplete", "failed", "cancelled"})


class Usage(TypedDict, total=False):
    input_tokens: int
    output_tokens: int
    cache_read_tokens: int
    cache_write_tokens: int
    cache_expired_tokens: int
    cache_expired_cost_usd: float
    web_searches: int
    web_fetches: int
    code_executions: int
    model_calls: int
    tool_calls: int
    cost_usd: float | None
    estimated: bool


class Budget(TypedDict):
    max_turns: int | None
    output_tokens: int | None
    total_tokens: int | None
    cost_usd: float | None
    deadline: str | None
    used_fraction: float


class Trouble(TypedDict):
    """What went wrong in a run, whatever its end."""

    tool_errors: int
    model_retries: int
    recovered: int
    hook_errors: int
    limits: list[str]


class Transition(TypedDict, total=False):
    reason: str
    detail: str
    turn: int
    version: int
    at: str | None


class WaitingCall(TypedDict, total=False):
    """A call that a person or another program must decide or answer."""

    id: str
    tool: str
    arguments: Any
    message: str
    needs: Literal["approval", "result", "answer", "child", "async"]
    hash: str
    run_id: str | None


class Waiting(TypedDict):
    reason: str
    since: str | None
    expires_at: str | None
    calls: list[WaitingCall]
    question: str | None


class Parent(TypedDict):
    run_id: str
    call_id: str
    depth: int


class RunError(TypedDict):
    code: str
    message: str


class AgentRef(TypedDict):
    """A version of an agent."""

    name: str
    version: int


class RunInfo(TypedDict):
    """A run as it stands."""

    id: str
    agent: str
    agent_version: int
    active_agent: AgentRef | None
    loop: str
    tenant: str
    priority: Priority
    metadata: dict[str, str]
    parent: Parent | None
    status: Status
    reason: str | None
    transition: Transition
    turn_count: int
    version: int
    output: str | None
    variables: dict[str, Any] | None
    structured_output: Any
    waiting: Waiting | None
    usage: Usage
    budget: Budget
    confidence: float | None
    error: RunError | None
    created_at: str
    started_at: str | None
    updated_at: str
    finished_at: str | None
    idle_ms: int
    trouble: Trouble


class _ForkSource(TypedDict):
    run_id: str
    turn: int


class ForkSource(_ForkSource, total=False):
    """The run whose history a fork shares through a turn, and what the fork changes, in words."""

    changed: list[str]


class _Event(TypedDict):
    seq: int | None
    run_id: str
    type: str
    turn: int
    attempt: int
    at: str


class Event(_Event, total=False):
    """One event of a run. `seq` is None for live events, which are not stored."""

    reason: str
    detail: str
    version: int
    status: Status
    message: Message
    messages: list[Message]
    message_ids: list[str]
    handoff: dict[Literal["from", "to"], AgentRef]
    forked_from: ForkSource
    call_id: str
    name: str
    is_error: bool
    duration_ms: int
    waiting: Waiting
    output: str
    structured_output: Any
    error: RunError
    usage: Usage
    progress: str
    delta: dict[str, Any]
    first: bool
    worker: str


class Part(TypedDict, total=False):
    type: Literal["text", "thinking", "tool_call", "tool_result", "image", "file", "provider_tool"]
    text: str
    id: str
    name: str
    arguments: Any
    call_id: str
    content: Any
    is_error: bool
    media_type: str
    data: str
    url: str
    file_id: str
    bytes: int
    images: list[dict[str, Any]]
    files: list[dict[str, Any]]


class Message(TypedDict, total=False):
    id: str
    role: Literal["system", "user", "assistant", "tool"]
    turn: int
    at: str
    model: str | None
    synthetic: bool
    tombstoned: bool
    compacted: bool
    parts: list[Part]


class Turn(TypedDict, total=False):
    """One row of the audit trail."""

    version: int
    turn: int
    reason: str
    detail: str
    status: Status
    at: str
    duration_ms: int
    attempt: int
    worker: str
    usage: Usage
    tool_calls: list[dict[str, Any]]


class Agent(TypedDict, total=False):
    """A version of an agent. `warnings` names places of the definition that refer to something missing."""

    name: str
    version: int
    definition: dict[str, Any]
    created_at: str
    status: str
    warnings: list[dict[str, Any]]


class Token(TypedDict, total=False):
    """A token of a user. `token` is its text, which cannot be read again."""

    id: str
    token: str
    user: str
    tenant: str
    roles: list[str]
    agents: list[str]
    run: str
    created_by: str
    expires_at: str


class BatchItem(TypedDict):
    index: int
    id: str
    status: Status
    reason: str | None


class BatchInfo(TypedDict):
    """A batch as it stands. `items` is one page of its runs."""

    id: str
    total: int
    max_parallel: int
    count_waiting: bool
    counts: dict[str, int]
    deleted: int
    done: bool
    created_at: str
    items: list[BatchItem]
    next_cursor: str | None


class Limits(TypedDict, total=False):
    """Limits of one run. Durations are texts such as "10m" or numbers of seconds."""

    max_turns: int
    output_tokens: int
    total_tokens: int
    cost_usd: float
    deadline: str | float
    wait: str | float
    runs: int


class Webhook(TypedDict, total=False):
    """An address that receives events of a run. `url` is required; `secret` refers to secrets of the workers, which sign the events."""

    url: str
    secret: str | list[str]
    events: list[Literal["run.finished", "run.waiting"]]


class Transcript(TypedDict):
    """The messages of a run in the format of a provider, which may be the input of another run. Only that of anthropic has `system`."""

    format: Literal["openai", "anthropic"]
    system: NotRequired[Any]
    messages: list[dict[str, Any]]


class Submission(TypedDict, total=False):
    """The body of a submission: `agent` and `input` are required."""

    agent: str
    input: str | list[dict[str, Any]] | Transcript
    agent_version: int
    limits: Limits
    priority: Priority
    start_at: str
    delay: str | float
    variables: dict[str, Any]
    output_schema: dict[str, Any]
    metadata: dict[str, str]
    webhook: Webhook
    stream: Literal["turns", "deltas"]
    confidence: float


class File(TypedDict):
    """An uploaded file, without its content. `sha256` is in hexadecimal digits."""

    id: str
    name: NotRequired[str]
    media_type: str
    bytes: int
    sha256: str
    created_at: str
    created_by: NotRequired[str]


class MemoryFile(TypedDict):
    """A file of a memory. Lists leave out its content."""

    path: str
    bytes: int
    version: int
    run_id: NotRequired[str]
    updated_by: NotRequired[str]
    updated_at: str
    origin: NotRequired[Literal["tool", "agent", "web"]]
    content: NotRequired[str]


class ScheduleSettings(TypedDict, total=False):
    """What an author sets for a schedule. Durations are texts such as "10m"."""

    cron: Required[str]
    timezone: str
    run: Required[Submission]
    overlap: Literal["skip", "queue_one", "allow", "cancel"]
    jitter: str
    paused: bool
    catch_up: str


class ScheduleFiring(TypedDict):
    """What became of one instant of a schedule: a run, or the reason why there is none."""

    at: str
    run_id: NotRequired[str]
    error: NotRequired[str]


class ScheduleInfo(ScheduleSettings, total=False):
    """A schedule as it stands. `fired` and `skipped` count its firings; runs on request are not among them."""

    name: Required[str]
    next: Required[list[str]]
    last: ScheduleFiring
    waiting: str
    fired: Required[int]
    skipped: Required[int]
    updated_at: Required[str]
    updated_by: Required[str]


class HookRun(TypedDict, total=False):
    """How a delivery or a message becomes a run. `input`, `key`, the values of `metadata` and `variables` are CEL."""

    agent: Required[str]
    input: str
    key: str
    metadata: dict[str, str]
    variables: str
    priority: Priority


class HookSignal(TypedDict, total=False):
    """How a delivery or a message becomes a signal. `run`, `message` and `answer` are CEL."""

    run: str
    message: str
    answer: str
    mode: Mode


class HookSettings(TypedDict, total=False):
    """What an author sets for a hook. `secret` refers to secrets of the gateways."""

    verify: Required[Literal["github", "stripe", "slack", "standard"]]
    secret: Required[str | list[str]]
    filter: str
    run: HookRun
    signal: HookSignal
    max_per_minute: int


class Hook(HookSettings):
    """A hook with the path of the address at which it takes deliveries. `warnings` as for an agent, when it is stored."""

    name: str
    path: str
    updated_at: str
    updated_by: str
    warnings: NotRequired[list[dict[str, Any]]]


# A class cannot have this one: `from` is a keyword.
_From = TypedDict("_From", {"from": Literal["new", "all"]}, total=False)


class TriggerSettings(_From, total=False):
    """What an author sets for a trigger. `filter` is CEL. While it is paused, messages wait in the stream."""

    stream: Required[str]
    subjects: list[str]
    filter: str
    run: HookRun
    signal: HookSignal
    max_per_minute: int
    paused: bool


class TriggerStatus(TypedDict):
    """What became of the messages of a trigger. Lists leave out `pending` and `in_flight`."""

    pending: NotRequired[int]
    in_flight: NotRequired[int]
    dead: int
    last_error: NotRequired[str]
    last_error_at: NotRequired[str]


class TriggerInfo(TriggerSettings):
    """A trigger as it stands. `warnings` as for an agent, when it is stored."""

    name: str
    status: TriggerStatus
    updated_at: str
    updated_by: str
    warnings: NotRequired[list[dict[str, Any]]]


class DeadCall(TypedDict):
    """A tool call that a replay makes again."""

    id: str
    tool: str
    arguments: str


class Replay(TypedDict):
    """The result of a replay. `at` is None until the next turn of the run has ended."""

    run_id: str
    at: str | None


class DeadLetter(TypedDict):
    """A message that could not be processed. `data` is the message as it came."""

    seq: int
    kind: str
    status: Literal["open", "replaying", "replayed", "closed"]
    run_id: str | None
    agent: str | None
    lane: str
    cause: str
    at: str | None
    version: int
    attempts: int
    calls: list[DeadCall]
    data: str
    replay: Replay | None
    advice: str


class PendingEvent(TypedDict):
    """An event that its webhook has not accepted yet. `reason` is why, `last_error` that of the latest attempt."""

    id: str
    run_id: str
    agent: str
    type: Literal["run.finished", "run.waiting"]
    host: str
    reason: Literal["first_attempt", "failed", "earlier_event", "receiver_failing", "busy"]
    since: str
    attempts: int
    last_attempt_at: str | None
    last_error: str
    next_attempt_at: str


class WebhookTest(TypedDict):
    """A test event that a worker sends once. `response_status` is 0 without a response of the receiver."""

    id: str
    host: str
    status: Literal["pending", "delivered", "failed"]
    created_at: str
    ended_at: str | None
    worker: str
    response_status: int
    latency_ms: int
    error: str


class VersionDuration(TypedDict):
    """Times from start to end of runs, in milliseconds."""

    p50: int | None
    p95: int | None


class VersionRuns(TypedDict):
    """What became of the runs of a version. `troubled` counts those in which something failed, whatever their end."""

    total: int
    statuses: dict[str, int]
    cost_usd: float | None
    duration_ms: VersionDuration
    troubled: int


class AgentVersion(TypedDict):
    """A version of an agent with the figures of its runs, of the newest 1,000 runs of the agent."""

    version: int
    created_at: str
    latest: bool
    runs: VersionRuns


class RunFilter(TypedDict, total=False):
    """Selects runs in flight. Each key that is given must match."""

    status: list[Literal["queued", "running", "waiting"]]
    waiting_reason: str
    agent: str
    loop: str
    parent: str
    batch: str
    metadata: dict[str, str]
    created_after: str
    created_before: str


class EvaluationVersion(TypedDict):
    """Totals of the runs of NAME@VERSION: `tokens` and `turns` are means of a run, `seconds` is the median."""

    version: str
    runs: int
    passed: int
    cost_usd: float
    tokens: float
    turns: float
    seconds: float


class EvaluationDifference(TypedDict):
    """Compares the means of two versions. `p` is the probability of the difference if they were the same."""

    figure: Literal["passed", "cost_usd", "tokens", "turns", "seconds"]
    first: float
    second: float
    p: float
    within_chance: bool


class EvaluationResult(TypedDict):
    """One run of a case. It has passed if it has no failures. `deleted` is a run that was deleted before it was read."""

    case: str
    version: str
    repeat: int
    run_id: str
    status: Literal["completed", "incomplete", "failed", "cancelled", "deleted"]
    failures: NotRequired[list[str]]
    turns: int
    tokens: int
    cost_usd: float
    seconds: float


class _EvaluationTotals(TypedDict):
    file: NotRequired[str]
    repeat: int
    versions: list[EvaluationVersion]
    differences: NotRequired[list[EvaluationDifference]]


class EvaluationReport(_EvaluationTotals):
    """The result of an evaluation: cases that ran against one or two versions of an agent, `repeat` times each."""

    judge_cost_usd: NotRequired[float]
    results: list[EvaluationResult]


class EvaluationSummary(_EvaluationTotals):
    """An evaluation without its results."""

    id: str
    judge_cost_usd: float
    cases: int
    updated_at: str
    updated_by: str


class Evaluation(_EvaluationTotals):
    """A report that the tenant keeps."""

    id: str
    judge_cost_usd: float
    results: list[EvaluationResult]
    updated_at: str
    updated_by: str
