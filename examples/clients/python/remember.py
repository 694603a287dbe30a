"""Writes what an agent will know about a user, and has a schedule start its runs."""

from turnpike import Changed, Client

client = Client()  # TURNPIKE_URL, TURNPIKE_TOKEN
client.put_agent("news", {
    "model": {"provider": "scripted", "responses": [{"text": "Nothing is new."}]},
    "tools": [{"name": "memory", "kind": "memory", "scope": "metadata.user"}],
})

memory = client.memory("metadata.user:ann")
file = memory.write("preferences.md", "Vegetarian.\n")
memory.write("preferences.md", "Vegan.\n", version=file["version"])

try:
    memory.write("preferences.md", "Eats everything.\n", version=file["version"])
except Changed as e:
    print(e)

schedule = client.schedule("daily")
schedule.put({
    "cron": "0 9 * * MON-FRI",
    "run": {"agent": "news", "input": "What is new?", "metadata": {"user": "ann"}},
})
print(schedule.run().result())
