"""Serves the tools of clients/cases/tools.json."""

import asyncio
import sys
import threading
import time
from dataclasses import dataclass
from typing import Annotated

from turnpike import Context, Image, Result, ResultFile, ToolError, serve, tool

released = threading.Event()
cancelled: list[str] = []


@dataclass
class Greeting:
    text: str


@tool
def greet(name: Annotated[str, "who is greeted"], times: int = 1, loud: bool = False) -> Greeting:
    """Greets a person."""
    text = f"Hello {name}!" * times
    return Greeting(text.upper() if loud else text)


@tool
async def add(a: float, b: float) -> float:
    """Adds two numbers.

    Args:
        a: ignored, since a description is not part of the case
    """
    return a + b


add.schema["properties"]["a"].pop("description")


@tool
def whoami(context: Context) -> dict[str, str]:
    return {"call": context.call_id, "run": context.run_id, "key": context.idempotency_key}


@tool
def fails(text: str) -> None:
    raise ToolError(text)


@tool
def breaks() -> None:
    raise RuntimeError("out of order")


@tool
def exits() -> None:
    sys.exit("no licence")


@tool
async def exits_async() -> None:
    sys.exit("no licence")


@tool
def interrupts() -> None:
    raise KeyboardInterrupt("no licence")


@tool(concurrency=1)
def stuck(seconds: float, context: Context) -> str:
    """Reports that it has begun, and ignores its deadline."""
    context.progress("begun")
    time.sleep(seconds)
    return "awake"


@tool
def odd() -> object:
    return threading.Lock()


@tool
def nothing() -> None:
    pass


@tool
def later() -> Result:
    return Result(pending=True)


@tool
def draw() -> Result:
    return Result("a picture", images=(Image("image/png", "aGk="),), files=(ResultFile(name="a.pdf", media_type="application/pdf", data="JVBERg=="),))


@tool
def large(bytes: int) -> str:
    return "x" * bytes


@tool
def steps(n: int, context: Context) -> str:
    for i in range(1, n + 1):
        context.progress(f"step {i} of {n}:\nkön")
    return "done"


@tool
def hold(context: Context) -> str:
    """Waits until the program reads a line."""
    released.wait()
    return context.idempotency_key


@tool
async def endless(context: Context) -> None:
    """Waits until it is cancelled."""
    context.progress("begun")
    try:
        await asyncio.Event().wait()
    finally:
        cancelled.append(context.idempotency_key)


@tool
def endless_thread(context: Context) -> None:
    """Waits until it is cancelled, in a thread."""
    context.progress("begun")
    context.cancel_event.wait()
    if context.cancelled:
        cancelled.append(context.idempotency_key)
    context.check()


@tool(concurrency=1)
def ended() -> list[str]:
    """Returns the keys of the calls that were cancelled."""
    return cancelled


def read() -> None:
    sys.stdin.readline()
    released.set()


threading.Thread(target=read, daemon=True).start()
serve(greet, add, whoami, fails, breaks, odd, nothing, later, draw, large, steps, hold, endless, endless_thread, exits, exits_async, interrupts, stuck, ended)
