"""Tests of the client against the deployment at TURNPIKE_URL."""

import hashlib
import os
import tempfile
import threading
import unittest
import uuid
from dataclasses import dataclass
from typing import Any

from turnpike import (
    Busy,
    Changed,
    Client,
    Conflict,
    EffectsStarted,
    Ended,
    EvaluationReport,
    Forbidden,
    Full,
    Image,
    Invalid,
    NotFound,
    NotWaiting,
    OutputError,
    Problem,
    ResultFile,
    Run,
    RunFailed,
    RunFilter,
    RunInfo,
    Stale,
    Unauthenticated,
    Unavailable,
)

client = Client(timeout=30)


def agent(*responses: dict[str, Any], **more: Any) -> str:
    """Saves an agent of its own for a test, and returns its name."""
    name = "a-" + uuid.uuid4().hex[:12]
    client.put_agent(name, {"model": {"provider": "scripted", "responses": list(responses)}, **more})
    return name


def call(tool: str, **arguments: Any) -> dict[str, Any]:
    return {"tool_calls": [{"name": tool, "id": "c1", "arguments": arguments}]}


def rest(run: Run, version: int) -> RunInfo:
    """Returns the run once it has ended, or waits, at a later version than this one."""
    for event in run.events(timeout=60):
        if event["type"] in ("run.waiting", "run.finished") and event.get("version", 0) > version:
            break
    return run.get()


@dataclass
class Invoice:
    customer: str
    total: float
    lines: list[str]


class Agents(unittest.TestCase):
    def test_put_get(self) -> None:
        name = agent({"text": "Hello."})
        self.assertEqual(client.get_agent(name).get("version"), 1)
        text = f"name: {name}\nmodel:\n  provider: scripted\n  responses: [{{text: Hello again.}}]\n"
        saved = client.put_agent(name, text)
        self.assertEqual((saved.get("name"), saved.get("version")), (name, 2))
        self.assertEqual(client.submit(name, "Hi").result(timeout=60), "Hello again.")
        self.assertEqual(client.submit(name, "Hi", agent_version=1).result(timeout=60), "Hello.")
        self.assertEqual((client.get_agent(name, version=1).get("version"), client.get_agent(name).get("version")), (1, 2))
        self.assertEqual([(v["version"], v["latest"], v["runs"]["statuses"]) for v in client.agent_versions(name)],
                         [(2, True, {"completed": 1}), (1, False, {"completed": 1})])
        self.assertIn(name, [a["name"] for a in client.agents()])
        client.delete_agent(name)
        with self.assertRaises(NotFound) as caught:
            client.get_agent(name)
        self.assertEqual((caught.exception.status, caught.exception.code), (404, "agent_not_found"))

    def test_mistakes(self) -> None:
        with self.assertRaises(Invalid) as caught:
            client.put_agent("bad", {"model": {"provider": "scripted", "responses": []}, "tools": [{"knd": "nats", "name": "x"}]})
        self.assertEqual(caught.exception.code, "invalid_agent")
        self.assertTrue(any("tools[0]" in e.get("at", "") for e in caught.exception.errors), caught.exception.errors)


class Runs(unittest.TestCase):
    def test_submit(self) -> None:
        name = agent({"text": "Hello."})
        mark = uuid.uuid4().hex
        run = client.submit(name, [{"role": "user", "parts": [{"type": "text", "text": "Hi"}]}], key=mark, metadata={"mark": mark}, priority="high",
                            limits={"max_turns": 3, "deadline": "10m"})
        self.assertEqual(run.result(timeout=60), "Hello.")
        info = run.get()
        self.assertEqual((info["status"], info["reason"], info["agent"], info["priority"]), ("completed", "completed", name, "high"))
        self.assertEqual(info["budget"]["max_turns"], 3)
        self.assertEqual([r["id"] for r in client.runs(metadata={"mark": mark}, status="completed")], [run.id])
        self.assertEqual([m["role"] for m in run.messages()], ["user", "assistant"])
        self.assertEqual(run.turns()[0]["reason"], "submitted")
        transcript = run.transcript("openai")
        self.assertEqual((transcript["format"], [m["role"] for m in transcript["messages"]]), ("openai", ["user", "assistant"]))
        again = client.submit(name, transcript)
        self.assertEqual(again.result(timeout=60), "Hello.")
        self.assertEqual([m["role"] for m in again.messages()], ["user", "assistant", "assistant"])
        # The same key and body is the same run, another body a conflict.
        self.assertEqual(client.submit(name, "Hi", key=mark + "2").id, client.submit(name, "Hi", key=mark + "2").id)
        with self.assertRaises(Conflict) as caught:
            client.submit(name, "Ho", key=mark + "2")
        self.assertEqual(caught.exception.code, "idempotency_conflict")
        with self.assertRaises(Ended):
            run.cancel()
        run.delete()
        with self.assertRaises(NotFound):
            run.get()

    def test_structured_output(self) -> None:
        name = agent({"text": '{"customer": "Ada", "total": 12, "lines": ["tea"]}'}, loop={"type": "single_call"})
        self.assertEqual(client.do(name, "Read this.", Invoice, timeout=60), Invoice("Ada", 12.0, ["tea"]))
        bad = agent({"text": '{"customer": "Ada"}'}, loop={"type": "single_call"})
        with self.assertRaises(RunFailed) as caught:
            client.do(bad, "Read this.", Invoice, timeout=60)
        self.assertEqual((caught.exception.status, caught.exception.reason), ("failed", "invalid_output"))
        with self.assertRaises(OutputError):
            client.submit(agent({"text": "no JSON"}), "Hi").result(Invoice, timeout=60)

    def test_failure(self) -> None:
        with self.assertRaises(RunFailed) as caught:
            client.submit(agent({"error": "invalid_request"}), "Hi").result(timeout=60)
        self.assertEqual((caught.exception.status, caught.exception.reason), ("failed", "model_error"))
        with self.assertRaises(NotFound):
            client.submit("nobody-" + uuid.uuid4().hex, "Hi")
        with self.assertRaises(Invalid) as invalid:
            client.submit(agent({"text": "x"}), "", limits={"max_turns": -1})
        self.assertEqual((invalid.exception.status, invalid.exception.code), (400, "invalid_request"))

    def test_events(self) -> None:
        run = client.submit(agent(call("pick"), {"text": "Done."}, tools=[{"name": "pick", "kind": "client", "schema": {"type": "object"}}]),
                            "Hi", stream="deltas")
        info = run.wait(timeout=60)
        waiting = info["waiting"]
        assert waiting is not None
        self.assertEqual((info["status"], waiting["reason"], waiting["calls"][0]["tool"]), ("waiting", "waiting_client_tool", "pick"))
        with self.assertRaises(TimeoutError):
            list(run.events(timeout=0.2))
        run.tool_result("c1", {"file": "a.txt"})
        events = list(run.events(timeout=60))
        committed = [e["seq"] for e in events if e["seq"] is not None]
        self.assertEqual(committed, list(range(1, len(committed) + 1)))
        self.assertEqual(events[-1]["type"], "run.finished")
        half = committed[len(committed) // 2]
        self.assertEqual([e["seq"] for e in run.events(after=half, timeout=60)], committed[half:])

    def test_fork(self) -> None:
        run = client.submit(agent({"text": "One."}, {"text": "Two."}), "Hi")
        self.assertEqual(run.result(timeout=60), "One.")
        fork = run.fork(0, input="Ho")
        self.assertEqual(fork.wait(timeout=60)["status"], "completed")
        self.assertEqual([m["parts"][0]["text"] for m in fork.messages() if m["role"] == "user"], ["Hi", "Ho"])

    def test_webhook(self) -> None:
        name = agent({"text": "Hello."})
        with self.assertRaises(Invalid) as caught:
            client.submit(name, "Hi", webhook={"url": "https://example.com/events", "secret": "the secret itself"})
        self.assertIn("webhook.secret", caught.exception.detail)
        run = client.submit(name, "Hi", webhook={"url": "https://example.com/events", "secret": "secret://EVENTS"})
        self.assertEqual(run.result(timeout=60), "Hello.")
        event = None
        while event is None:  # its worker has still to announce it
            event = next((e for e in client.pending_events() if e["run_id"] == run.id), None)
        self.assertEqual((event["type"], event["host"], event["agent"]), ("run.finished", "example.com:443", name))

    def test_variables(self) -> None:
        schema = {"type": "object", "required": ["customer"], "properties": {"customer": {"type": "string"}}}
        name = agent({"text": "Hello."}, {"text": "Hello."}, instructions="Help {{customer}}.", variables=schema)
        run = client.submit(name, "Hi", variables={"customer": "Ada"})
        self.assertEqual(run.result(timeout=60), "Hello.")
        self.assertEqual(run.get()["variables"], {"customer": "Ada"})
        self.assertEqual(run.fork(0).get()["variables"], {"customer": "Ada"})
        self.assertEqual(run.fork(0, variables={"customer": "Bo"}).get()["variables"], {"customer": "Bo"})
        with self.assertRaises(Invalid) as caught:
            client.submit(name, "Hi")
        self.assertIn("variables.customer", caught.exception.detail)
        batch = client.batch([{"agent": name, "input": "Hi", "variables": {"customer": "Cy"}}])
        self.assertEqual(batch.runs[0].get()["variables"], {"customer": "Cy"})


class Signals(unittest.TestCase):
    tools = [{"name": "pay", "kind": "client", "approval": "always", "schema": {"type": "object"}}]

    def waiting(self, *responses: dict[str, Any]) -> Any:
        run = client.submit(agent(*(responses or (call("pay", amount=7), {"text": "Done."})), tools=self.tools), "Hi")
        info = run.wait(timeout=60)
        assert info["waiting"] is not None
        return run, info["waiting"]

    def test_approve(self) -> None:
        run, waiting = self.waiting()
        self.assertEqual(waiting["reason"], "waiting_approval")
        with self.assertRaises(NotWaiting) as caught:
            run.answer("yes")
        self.assertEqual((caught.exception.status, caught.exception.code), (409, "not_waiting"))
        with self.assertRaises(Stale):
            run.approve("c1", hash="0" * 64)
        run.approve("c1", arguments={"amount": 5}, reason="less", hash=waiting["calls"][0]["hash"])
        info = run.wait(timeout=60)
        self.assertEqual(info["waiting"]["calls"][0]["arguments"], {"amount": 5})
        run.tool_result("c1", "no money", is_error=True)
        self.assertEqual(run.result(timeout=60), "Done.")

    def test_deny(self) -> None:
        run, _ = self.waiting()
        run.deny("c1", reason="too much")
        self.assertEqual(run.result(timeout=60), "Done.")
        self.assertTrue(any("too much" in str(m["parts"]) for m in run.messages()))

    def test_answer(self) -> None:
        run = client.submit(agent(call("ask", question="Which one?"), {"text": "Done."}, tools=[{"name": "ask", "kind": "human"}]), "Hi")
        info = run.wait(timeout=60)
        assert info["waiting"] is not None
        self.assertEqual(info["waiting"]["reason"], "waiting_human_input")
        run.answer("The red one.")
        self.assertEqual(run.result(timeout=60), "Done.")

    def test_files(self) -> None:
        run, _ = self.waiting()
        run.approve("c1")
        run.wait(timeout=60)
        made = client.upload(b"# Receipt", name="receipt.md")
        run.tool_result("c1", "paid", images=[Image("image/png", "aGk=")], files=[ResultFile(made["id"]), ResultFile(media_type="text/plain", data="aGk=")])
        self.assertEqual(run.result(timeout=60), "Done.")
        [part] = [p for m in run.messages() if m["role"] == "tool" for p in m["parts"]]
        self.assertEqual([(f.get("file_id"), f["media_type"].partition(";")[0]) for f in part["files"]], [(made["id"], "text/markdown"), (None, "text/plain")])
        self.assertEqual([i["media_type"] for i in part["images"]], ["image/png"])

    def test_message(self) -> None:
        run = client.submit(agent({"text": "One."}, {"text": "Two."}), "Hi")
        self.assertEqual(run.result(timeout=60), "One.")
        version = run.get()["version"]
        run.message("And then?", mode="reject")  # it is not busy
        self.assertEqual(rest(run, version)["output"], "Two.")

    def test_reject(self) -> None:
        run = client.submit(agent({"text": "late", "delay": "1h"}), "Hi")
        with self.assertRaises(Busy) as caught:
            run.message("Stop.", mode="reject")
        self.assertEqual((caught.exception.status, caught.exception.code), (409, "run_busy"))
        run.cancel()

    def test_enqueue(self) -> None:
        run, _ = self.waiting()
        run.message("Hurry.", mode="enqueue")
        run.deny("c1")
        self.assertEqual(run.result(timeout=60), "Done.")
        self.assertIn("Hurry.", [m["parts"][0].get("text") for m in run.messages() if m["role"] == "user"])

    def test_interrupt(self) -> None:
        run, _ = self.waiting()
        run.message("Send a voucher.", mode="interrupt")
        self.assertEqual(run.result(timeout=60), "Done.")
        self.assertIn("interrupted", [t["reason"] for t in run.turns()])
        self.assertTrue(any(m["role"] == "tool" and "interrupted" in str(m["parts"]) for m in run.messages()), run.messages())

    def test_rollback(self) -> None:
        run, _ = self.waiting(call("pay", amount=7), call("pay", amount=5), {"text": "Done."})
        version = run.get()["version"]
        run.message("5, I mean.", mode="rollback")
        info = rest(run, version)
        assert info["waiting"] is not None
        asked = info["waiting"]["calls"][0]
        self.assertEqual(asked["arguments"], {"amount": 5})
        self.assertEqual([m["role"] for m in run.messages()], ["user", "user", "assistant"])
        run.approve("c1", hash=asked["hash"])
        self.assertEqual(rest(run, info["version"])["transition"]["reason"], "waiting_client_tool")
        with self.assertRaises(EffectsStarted) as caught:
            run.message("No, 3.", mode="rollback")
        self.assertEqual((caught.exception.status, caught.exception.code), (409, "effects_started"))
        run.tool_result("c1", "paid")
        self.assertEqual(run.result(timeout=60), "Done.")

    def test_cancel(self) -> None:
        run, _ = self.waiting()
        run.cancel("not needed")
        self.assertEqual(run.wait(timeout=60)["status"], "cancelled")
        with self.assertRaises(RunFailed) as caught:
            run.result(timeout=60)
        self.assertEqual(caught.exception.reason, "aborted_waiting")

    def test_cancel_runs(self) -> None:
        runs = [self.waiting()[0] for _ in range(2)]
        filter: RunFilter = {"status": ["waiting"], "metadata": {"mark": uuid.uuid4().hex}}
        self.assertEqual(client.cancel_runs(filter), [])
        name = runs[0].get()["agent"]
        self.assertEqual(client.cancel_runs({"agent": name}, dry_run=True), [runs[0].id])
        self.assertEqual(runs[0].get()["status"], "waiting")
        self.assertEqual(client.cancel_runs({"agent": name}, reason="not needed"), [runs[0].id])
        self.assertEqual((runs[0].wait(timeout=60)["status"], runs[1].get()["status"]), ("cancelled", "waiting"))
        with self.assertRaises(Invalid):
            client.cancel_runs({})


class Memories(unittest.TestCase):
    def test_files(self) -> None:
        scope = "metadata.user:" + uuid.uuid4().hex
        memory = client.memory(scope)
        self.assertEqual(list(memory.files()), [])
        made = memory.write("notes/ann.md", "Vegetarian.\n", version=0)
        self.assertEqual((made["path"], made["bytes"], made["version"]), ("notes/ann.md", 12, 1))
        with self.assertRaises(Changed) as caught:
            memory.write("notes/ann.md", "Vegetarian.\n", version=0)
        self.assertEqual((caught.exception.status, caught.exception.code), (412, "memory_changed"))
        self.assertEqual(memory.write("notes/ann.md", "Vegan.\n", version=1)["version"], 2)
        memory.write("/memories/a ö%.md", "Odd.\n")
        self.assertEqual([(f["path"], "content" in f) for f in memory.files()], [("a ö%.md", False), ("notes/ann.md", False)])
        self.assertEqual(memory.read("notes/ann.md").get("content"), "Vegan.\n")
        self.assertIn(scope, list(client.memory_scopes()))
        for odd in ("", "..", "notes/../a.md"):
            with self.assertRaises(Invalid):
                memory.delete(odd)
        with self.assertRaises(Changed):
            memory.delete("notes/ann.md", version=1)
        memory.delete("notes/ann.md", version=2)
        with self.assertRaises(NotFound) as missing:
            memory.read("notes/ann.md")
        self.assertEqual(missing.exception.code, "memory_not_found")
        with self.assertRaises(NotFound):
            memory.delete("notes")
        memory.erase()
        self.assertNotIn(scope, list(client.memory_scopes()))
        with self.assertRaises(NotFound):
            memory.erase()

    def test_many(self) -> None:
        memory = client.memory("metadata.user:" + uuid.uuid4().hex)
        names = [f"{n:03}.md" for n in range(60)]  # more than a page
        for name in names:
            memory.write(name, name)
        self.assertEqual([f["path"] for f in memory.files()], names)
        memory.erase()


class Schedules(unittest.TestCase):
    def test_schedule(self) -> None:
        name = agent({"text": "Hello."})
        schedule = client.schedule("s-" + uuid.uuid4().hex[:12])
        with self.assertRaises(NotFound) as missing:
            schedule.get()
        self.assertEqual(missing.exception.code, "schedule_not_found")
        with self.assertRaises(Invalid) as caught:
            schedule.put({"cron": "0 9 * *", "run": {"agent": name, "input": "Hi"}})
        self.assertIn("0 9 * *", caught.exception.detail)
        made = schedule.put({"cron": "0 9 * * MON-FRI", "timezone": "Europe/Berlin", "overlap": "queue_one", "jitter": "30s",
                             "run": {"agent": name, "input": "Hi", "metadata": {"for": "me"}}})
        self.assertEqual((made["name"], made["cron"], made.get("overlap"), len(made["next"]), made["fired"]),
                         (schedule.name, "0 9 * * MON-FRI", "queue_one", 5, 0))
        paused = schedule.pause()
        self.assertEqual((paused.get("paused"), paused["next"]), (True, []))
        run = schedule.run(key="once")
        self.assertEqual(schedule.run(key="once").id, run.id)
        self.assertNotEqual(schedule.run().id, run.id)
        self.assertEqual(run.result(timeout=60), "Hello.")
        metadata = run.get()["metadata"]
        self.assertEqual((metadata["for"], metadata["schedule"], "scheduled_at" in metadata), ("me", schedule.name, True))
        self.assertEqual(len(schedule.resume()["next"]), 5)
        self.assertIn(schedule.name, [s["name"] for s in client.schedules()])
        schedule.delete()
        with self.assertRaises(NotFound):
            schedule.delete()


class Files(unittest.TestCase):
    def test_file(self) -> None:
        content = b"\xff\x00 a,b\n" * 10_000
        made = client.upload(content, name="table.csv")
        self.assertEqual((made.get("name"), made["bytes"], made["media_type"].partition(";")[0]), ("table.csv", len(content), "text/csv"))
        self.assertEqual(made["sha256"], hashlib.sha256(content).hexdigest())
        self.assertEqual(client.get_file(made["id"]), made)
        self.assertEqual(client.download(made["id"]), content)
        self.assertIn(made, list(client.files()))
        with tempfile.NamedTemporaryFile(suffix=".md") as f:
            f.write(b"# Title")
            f.flush()
            self.assertEqual(client.download(client.upload(f.name)["id"]), b"# Title")
            f.seek(2)
            rest = client.upload(f)
            self.assertEqual((rest.get("name"), client.download(rest["id"])), (os.path.basename(f.name), b"Title"))
        large = Client(timeout=30, retry_for=0)
        with tempfile.TemporaryFile() as f:
            f.truncate(64 << 20)
            f.seek(0)
            with self.assertRaises(Full) as refused:
                large.upload(f, name="large.txt")
        self.assertEqual((refused.exception.status, refused.exception.code), (413, "body_too_large"))
        run = client.submit(agent({"text": "Read."}), [{"role": "user", "parts": [{"type": "file", "file_id": made["id"]}]}])
        self.assertEqual(run.result(), "Read.")
        with self.assertRaises(Conflict) as used:
            client.delete_file(made["id"])
        self.assertEqual(used.exception.code, "file_in_use")
        free = client.upload(b"x")["id"]
        client.delete_file(free)
        with self.assertRaises(NotFound) as gone:
            client.download(free)
        self.assertEqual(gone.exception.code, "file_not_found")


class Hooks(unittest.TestCase):
    def test_hook(self) -> None:
        name = "h-" + uuid.uuid4().hex[:12]
        with self.assertRaises(Invalid) as caught:
            client.put_hook(name, {"verify": "github", "secret": "the secret itself", "run": {"agent": "triage"}})
        self.assertIn("secret", caught.exception.detail)
        made = client.put_hook(name, {"verify": "github", "secret": "secret://GITHUB", "filter": "event.action == 'opened'",
                                      "run": {"agent": agent({"text": "Hello."}), "input": "event.issue.title"}})
        self.assertEqual((made["name"], made["path"], made["verify"]), (name, "/v1/hooks/" + name, "github"))
        self.assertEqual(client.get_hook(name), made)
        self.assertIn(made, list(client.hooks()))
        client.delete_hook(name)
        with self.assertRaises(NotFound) as missing:
            client.get_hook(name)
        self.assertEqual(missing.exception.code, "hook_not_found")


class Triggers(unittest.TestCase):
    def test_trigger(self) -> None:
        run = client.submit(agent(call("ask", question="Which one?"), {"text": "Done."}, tools=[{"name": "ask", "kind": "human"}]), "Hi")
        run.wait(timeout=60)
        trigger = client.trigger("t-" + uuid.uuid4().hex[:12])
        with self.assertRaises(Invalid) as caught:
            trigger.put({"stream": "ANSWERS", "signal": {"run": "'" + run.id, "answer": "event.text"}})
        self.assertIn("signal.run", caught.exception.detail)
        made = trigger.put({"stream": "ANSWERS", "subjects": ["answers.*"], "from": "all", "signal": {"run": f"'{run.id}'", "answer": "event.text"}})
        self.assertEqual((made["name"], made["stream"], made.get("from"), made["status"]["dead"]), (trigger.name, "ANSWERS", "all", 0))
        self.assertEqual(run.result(timeout=60), "Done.")  # by the message that the stream has
        self.assertIn("The red one.", str(run.messages()))
        now = trigger.get()
        self.assertEqual((now.get("subjects"), now["status"].get("pending"), now["status"].get("last_error")), (["answers.*"], 0, None))
        self.assertTrue(trigger.put({"stream": "ANSWERS", "run": {"agent": "a"}, "paused": True}).get("paused"))
        self.assertIn(trigger.name, [t["name"] for t in client.triggers()])
        trigger.delete()
        with self.assertRaises(NotFound) as missing:
            trigger.get()
        self.assertEqual(missing.exception.code, "trigger_not_found")

    def test_dead_letter(self) -> None:
        [letter] = [d for d in client.dead_letters() if d["agent"] == "late-python"]  # of a submission without an agent
        self.assertEqual((letter["kind"], letter["status"], client.get_dead_letter(letter["seq"])), ("submission", "open", letter))
        client.put_agent("late-python", {"model": {"provider": "scripted", "responses": [{"text": "At last."}]}})
        for _ in range(2):
            replay = client.replay_dead_letter(letter["seq"])["replay"]
            assert replay is not None
            self.assertEqual(client.run(replay["run_id"]).result(timeout=60), "At last.")
        self.assertEqual(len(list(client.runs(agent="late-python"))), 1)


class Webhooks(unittest.TestCase):
    def test_test(self) -> None:
        url = os.environ["TURNPIKE_RECEIVER_URL"]
        ended = client.test_webhook(url, "secret://RECEIVER")
        self.assertEqual((ended["status"], ended["response_status"], ended["error"]), ("delivered", 204, ""))
        self.assertEqual(client.get_webhook_test(ended["id"]), ended)
        failed = client.test_webhook(url, ["secret://RECEIVER", "secret://MISSING"])
        self.assertEqual((failed["status"], failed["response_status"]), ("failed", 0))
        self.assertIn("MISSING", failed["error"])
        with self.assertRaises(TimeoutError):
            client.test_webhook(url, "secret://RECEIVER", timeout=0)
        with self.assertRaises(Invalid):
            client.test_webhook(url, "the secret itself")
        with self.assertRaises(NotFound) as caught:
            client.get_webhook_test("test_01ARZ3NDEKTSV4RRFFQ69G5FAV")
        self.assertEqual(caught.exception.code, "webhook_test_not_found")


class Evaluations(unittest.TestCase):
    def test_evaluation(self) -> None:
        name, id = "a-" + uuid.uuid4().hex[:12], "e-" + uuid.uuid4().hex[:12]
        report: EvaluationReport = {
            "repeat": 1,
            "versions": [{"version": name + "@1", "runs": 1, "passed": 0, "cost_usd": 0.5, "tokens": 7, "turns": 1, "seconds": 2}],
            "results": [{"case": "france", "version": name + "@1", "repeat": 1, "run_id": "run_01ARZ3NDEKTSV4RRFFQ69G5FAV", "status": "completed",
                         "failures": ["no Paris"], "turns": 1, "tokens": 7, "cost_usd": 0.5, "seconds": 2}],
        }
        made = client.put_evaluation(id, report)
        self.assertEqual((made["id"], made["cases"], made["versions"]), (id, 1, report["versions"]))
        self.assertEqual(client.get_evaluation(id)["results"], report["results"])
        self.assertEqual(list(client.evaluations(agent=name)), [made])
        self.assertEqual(list(client.evaluations(agent="nobody")), [])
        report["versions"][0]["passed"] = 1
        with self.assertRaises(Invalid) as caught:
            client.put_evaluation(id, report)
        self.assertIn("versions[0]", caught.exception.detail)
        client.delete_evaluation(id)
        with self.assertRaises(NotFound) as missing:
            client.get_evaluation(id)
        self.assertEqual(missing.exception.code, "evaluation_not_found")


class Others(unittest.TestCase):
    def test_batch(self) -> None:
        name = agent({"text": "Noted."})
        batch = client.batch([{"agent": name, "input": text} for text in ("Tea.", "Coffee.", "Water.")], max_parallel=2)
        info = batch.wait(timeout=60)
        self.assertEqual((info["total"], info["counts"], info["max_parallel"]), (3, {"completed": 3}, 2))
        self.assertEqual([i["id"] for i in batch.items()], [r.id for r in batch.runs])
        with self.assertRaises(Invalid) as caught:
            client.batch([{"agent": name, "input": "Tea."}, {"agent": name, "input": ""}])
        self.assertIn("runs[1]", caught.exception.detail)

    def test_token(self) -> None:
        url = os.environ["TURNPIKE_KEYS_URL"]  # of a gateway that wants keys
        with self.assertRaises(Unauthenticated) as caught:
            Client(url, token="tp_x_y").run("run_01ARZ3NDEKTSV4RRFFQ69G5FAV").get()
        self.assertEqual((caught.exception.status, caught.exception.code), (401, "unauthenticated"))
        self.assertTrue(caught.exception.request_id)
        own = Client(url, token=os.environ["TURNPIKE_KEY"])
        with self.assertRaises(NotFound):
            own.run("run_01ARZ3NDEKTSV4RRFFQ69G5FAV").get()
        made = own.create_token("ada", roles=["viewer"], expires_in="5m")
        self.assertEqual((made["user"], made["roles"]), ("ada", ["viewer"]))
        user = Client(url, token=made["token"])
        self.assertEqual(list(user.runs()), [])
        with self.assertRaises(Forbidden):
            list(user.agents())

    def test_nobody_answers(self) -> None:
        with self.assertRaises(Unavailable) as caught:
            Client("http://127.0.0.1:1", retry_for=0.3).run("run_x").get()
        self.assertEqual((caught.exception.status, caught.exception.code), (0, "unreachable"))
        with self.assertRaises(ValueError):
            Client("localhost")

    def test_not_a_gateway(self) -> None:
        import http.server

        class Page(http.server.BaseHTTPRequestHandler):
            answers = [(429, "1"), (503, "0"), (302, ""), (200, "")]
            seen: list[str] = []

            def do_POST(self) -> None:
                self.seen.append(self.headers["Idempotency-Key"])
                status, after = self.answers[len(self.seen) - 1]
                self.send_response(status)
                self.send_header("Location", "http://127.0.0.1:1/")
                if after:
                    self.send_header("Retry-After", after)
                self.end_headers()
                self.wfile.write(b"<html>")

            def log_message(self, *args: object) -> None:
                pass

        with http.server.HTTPServer(("127.0.0.1", 0), Page) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            own = Client(f"127.0.0.1:{server.server_port}", token="secret", retry_for=10)
            for _ in range(2):  # a redirect, which is not followed, and a page
                with self.assertRaises(Problem) as caught:
                    own.submit("a", "b")
                self.assertEqual(caught.exception.code, "foreign")
            server.shutdown()
        self.assertEqual(len(set(Page.seen[:3])), 1)  # retries of one submission have its key
        self.assertEqual(len(Page.seen), 4)


if __name__ == "__main__":
    unittest.main()
