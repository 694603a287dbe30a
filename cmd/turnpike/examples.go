package main

import (
	"strings"

	"github.com/alecthomas/kong"
)

// examples are examples of commands, by their names, for the help.
var examples = map[string]string{
	"approve":         "turnpike approve J7TACJQES",
	"agents ls":       "turnpike agents",
	"agents put":      "turnpike agents put agent.yaml",
	"agents versions": "turnpike agents versions support",
	"answer":          "turnpike answer J7TACJQES Four",
	"audit":           "turnpike audit --limit 20",
	"batch submit":    "turnpike batch support questions.txt",
	"cancel":          "turnpike cancel J7TACJQES --reason duplicate",
	"completion":      "turnpike completion bash",
	"dead ls":         "turnpike dead",
	"dead replay":     "turnpike dead replay 17",
	"delete":          "turnpike delete J7TACJQES",
	"deny":            "turnpike deny J7TACJQES --reason expensive",
	"dev":             "turnpike dev --agents ./agents",
	"doctor":          "turnpike doctor",
	"eval run":        "turnpike eval cases.yaml",
	"fork":            "turnpike fork J7TACJQES 2 --message Shorter",
	"gc":              "turnpike gc --older-than 720h",
	"init":            "turnpike init hello --lang python",
	"keys create":     "turnpike keys create --role submitter",
	"mcp ls":          "turnpike mcp ls agent.yaml",
	"message":         "turnpike message J7TACJQES Continue",
	"open":            "turnpike open J7TACJQES",
	"ps":              "turnpike ps --status waiting --since 24h",
	"result":          "turnpike result J7TACJQES call_1 done",
	"run":             "turnpike run support Where-is-A-17? --cost-usd 0.5",
	"show":            "turnpike show J7TACJQES",
	"submit":          "turnpike submit support Hello --metadata ticket=417",
	"tools ls":        "turnpike tools",
	"watch":           "turnpike watch J7TACJQES",
	"stats":           "turnpike stats --by model --since 168h",
	"workers":         "turnpike workers",
}

// withExamples adds the examples to the help of the commands.
var withExamples = kong.PostBuild(func(k *kong.Kong) error {
	for _, command := range k.Model.Leaves(true) {
		if example := examples[nameOf(command)]; example != "" {
			command.Detail = "Example:\n\n    " + example
		}
	}
	return nil
})

// nameOf returns the words that name a command.
func nameOf(command *kong.Node) string {
	var words []string
	for n := command; n.Parent != nil; n = n.Parent {
		words = append([]string{n.Name}, words...)
	}
	return strings.Join(words, " ")
}
