"""Memories, schedules and triggers."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import quote

from .errors import Changed, NotFound
from .run import Run
from .transport import query
from .types import MemoryFile, ScheduleInfo, ScheduleSettings, TriggerInfo, TriggerSettings

if TYPE_CHECKING:
    from .client import Client


class Memory:
    """The files that agents keep for later runs, of one scope: tenant, agent:NAME or metadata.KEY:VALUE.

    Paths are relative to /memories. A change with a `version` is made only if the file has that version, and raises
    Changed if not; version 0 stands for no file.
    """

    def __init__(self, client: Client, scope: str):
        self._client, self.scope = client, scope

    def __repr__(self) -> str:
        return f"Memory({self.scope!r})"

    def files(self) -> Iterator[MemoryFile]:
        """Yields the files by path, without their contents. A memory that does not exist has none."""
        return self._client._pages("/v1/memory", {"scope": self.scope})

    def read(self, path: str) -> MemoryFile:
        """Reads a file. Raises NotFound if there is none."""
        return cast(MemoryFile, self._call("GET", path))

    def write(self, path: str, content: str, *, version: int | None = None) -> MemoryFile:
        """Writes a file."""
        try:
            return cast(MemoryFile, self._call("PUT", path, {"content": content}, version))
        except Changed as e:
            if e.retried and (now := self._find(path)) and now.get("content") == content:
                return now  # by an earlier try
            raise

    def delete(self, path: str, *, version: int | None = None) -> None:
        """Deletes a file, or all files of a directory."""
        try:
            self._call("DELETE", path, None, version)
        except Changed as e:
            below = path.removeprefix("/memories/")
            if not e.retried or any(f["path"] == below or f["path"].startswith(below + "/") for f in self.files()):
                raise

    def erase(self) -> None:
        """Deletes the memory with all its files. Raises NotFound if there is none."""
        self._client._transport.call("DELETE", "/v1/memory" + query({"scope": self.scope}))

    def _find(self, path: str) -> MemoryFile | None:
        try:
            return self.read(path)
        except NotFound:
            return None

    def _call(self, method: str, path: str, body: Any = None, version: int | None = None) -> Any:
        # As one segment: a server would resolve dots and slashes to another resource.
        segment = quote(path, safe="").replace(".", "%2E")
        return self._client._transport.call(method, f"/v1/memory/{segment}{query({'scope': self.scope})}", body, if_match=version)


class Schedule:
    """Starts a run at fixed times."""

    def __init__(self, client: Client, name: str):
        self._client, self.name = client, name
        self._path = "/v1/schedules/" + quote(name, safe="")

    def __repr__(self) -> str:
        return f"Schedule({self.name!r})"

    def put(self, settings: ScheduleSettings) -> ScheduleInfo:
        """Stores the settings, all of them. The schedule fires for instants from then on."""
        return self._call("PUT", "", dict(settings))

    def get(self) -> ScheduleInfo:
        """Reads the settings, the next instants and the latest firing."""
        return self._call("GET", "")

    def pause(self) -> ScheduleInfo:
        """Stops the schedule from firing until `resume`."""
        return self._call("POST", "/pause")

    def resume(self) -> ScheduleInfo:
        """Lets the schedule fire again, for instants from then on."""
        return self._call("POST", "/resume")

    def run(self, *, key: str | None = None) -> Run:
        """Starts the run now, whatever `overlap` says and also while the schedule is paused.

        The same `key` gives the same run; without one each call starts a run.
        """
        made = self._client._transport.call("POST", self._path + "/run", key=key or secrets.token_hex(16))
        return Run(self._client, made["id"])

    def delete(self) -> None:
        """Removes the schedule. Its runs stay."""
        self._client._transport.call("DELETE", self._path)

    def _call(self, method: str, path: str, body: Any = None) -> ScheduleInfo:
        return cast(ScheduleInfo, self._client._transport.call(method, self._path + path, body))


class Trigger:
    """Starts runs, or sends signals, for the messages of a JetStream stream."""

    def __init__(self, client: Client, name: str):
        self._client, self.name = client, name
        self._path = "/v1/triggers/" + quote(name, safe="")

    def __repr__(self) -> str:
        return f"Trigger({self.name!r})"

    def put(self, settings: TriggerSettings) -> TriggerInfo:
        """Stores the settings, all of them. Gateways use them within two seconds."""
        return cast(TriggerInfo, self._client._transport.call("PUT", self._path, dict(settings)))

    def get(self) -> TriggerInfo:
        """Reads the settings, and what became of the messages."""
        return cast(TriggerInfo, self._client._transport.call("GET", self._path))

    def delete(self) -> None:
        """Removes the trigger with its consumer. Its runs stay."""
        self._client._transport.call("DELETE", self._path)
