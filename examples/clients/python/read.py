"""Has a model read a file, and a second one that this program returns as the result of a tool."""

from turnpike import Client, ResultFile

client = Client()  # TURNPIKE_URL, TURNPIKE_TOKEN
client.put_agent("reader", {
    "model": {"provider": "scripted", "responses": [
        {"tool_calls": [{"name": "fetch", "arguments": {"name": "CONTRIBUTING.md"}}]}, {"text": "I have read both."},
    ]},
    "tools": [{
        "name": "fetch", "kind": "client", "description": "Returns another file of the project.",
        "schema": {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]},
    }],
})

with open("README.md", "rb") as file:
    readme = client.upload(file)
run = client.submit("reader", [{"role": "user", "parts": [
    {"type": "text", "text": "What does it say?"}, {"type": "file", "file_id": readme["id"]},
]}])

waiting = run.wait()["waiting"]
for call in waiting["calls"] if waiting else []:
    found = client.upload(call["arguments"]["name"])
    run.tool_result(call["id"], "Here it is.", files=[ResultFile(found["id"])])
print(run.result())
