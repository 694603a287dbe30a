"""Clock is an MCP server on its standard streams, with one tool, on the standard library alone.

A worker starts it: see ../mcp-tool.yaml.
"""

import json
import sys
from datetime import datetime, timezone

VERSIONS = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
TOOL = {
    "name": "date",
    "description": "Tells the date that belongs to a Unix time.",
    "inputSchema": {"type": "object", "properties": {"seconds": {"type": "integer"}}, "required": ["seconds"]},
}


def answer(method: str, params: dict) -> dict | None:
    if method == "initialize":
        wanted = params.get("protocolVersion")
        version = wanted if wanted in VERSIONS else VERSIONS[0]
        return {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": {"name": "clock", "version": "1"}}
    if method == "tools/list":
        return {"tools": [TOOL]}
    if method == "tools/call":
        date = datetime.fromtimestamp(params["arguments"]["seconds"], timezone.utc).date()
        return {"content": [{"type": "text", "text": date.isoformat()}]}
    if method == "ping":
        return {}
    return None


for line in sys.stdin:  # which ends with the session
    request = json.loads(line)
    if "id" not in request or "method" not in request:
        continue
    reply = {"jsonrpc": "2.0", "id": request["id"]}
    result = answer(request["method"], request.get("params", {}))
    if result is None:
        reply["error"] = {"code": -32601, "message": f"{request['method']} is not known here"}
    else:
        reply["result"] = result
    print(json.dumps(reply), flush=True)
