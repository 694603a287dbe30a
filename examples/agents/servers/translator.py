"""Translator is a remote agent that speaks A2A 1.0, on the standard library alone. It knows two words.

    python3 examples/agents/servers/translator.py
"""

import json
import os
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

HOST, PORT = os.environ.get("TRANSLATOR_ADDR", "127.0.0.1:7090").split(":")
WORDS = {"bread": "pão", "water": "água"}
CARD = {
    "name": "translator", "description": "Translates a word to Portuguese.", "version": "1",
    "supportedInterfaces": [{"url": f"http://{HOST}:{PORT}/rpc", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}],
    "capabilities": {}, "defaultInputModes": ["text/plain"], "defaultOutputModes": ["text/plain"],
    "skills": [{"id": "translate", "name": "translate", "description": "Translates a word.", "tags": ["language"]}],
}


class Agent(BaseHTTPRequestHandler):
    def do_GET(self):
        self.reply(CARD if self.path == "/.well-known/agent-card.json" else None)

    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if request["method"] != "SendMessage":
            return self.reply({"jsonrpc": "2.0", "id": request["id"], "error": {"code": -32601, "message": "not known here"}})
        text = request["params"]["message"]["parts"][0]["text"]
        print(f"translator: {text}", flush=True)
        found = next((there for here, there in WORDS.items() if here in text), "I do not know that word.")
        message = {"messageId": "1", "role": "ROLE_AGENT", "parts": [{"text": found}]}
        return self.reply({"jsonrpc": "2.0", "id": request["id"], "result": {"message": message}})

    def reply(self, body):
        data = json.dumps(body).encode()
        self.send_response(200 if body else 404)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_):
        pass


server = ThreadingHTTPServer((HOST, int(PORT)), Agent)
print(f"translator: http://{HOST}:{PORT}", flush=True)
try:
    server.serve_forever()
except KeyboardInterrupt:
    sys.exit()
