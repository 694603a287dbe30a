// Package docs tests the docs: it runs every command of every page, parses every YAML and
// JSON block as the document that it is, and runs every agent of examples/agents, which
// must end as the table of the test says.
//
// CONTRIBUTING.md says how a page marks its blocks of code. The test of a page is a
// session: a copy of the repository's root in a temporary directory, with turnpike on the
// PATH and a deployment unless the page starts one itself (the one of
// examples/agents/README.md). It runs the blocks of commands in order in one shell, which
// has TURNPIKE_URL. Services find NATS as a newcomer's do, through the file that
// `turnpike dev` writes. A session changes these things:
//
//   - Every port that a page names on 127.0.0.1 or localhost is another, free one, in
//     the commands and in the files of examples, so pages run side by side.
//   - turnpike and `go run ./…` are built once.
//   - `make` only checks that the target exists, and `go test` only that the packages do.
//   - Exit codes 3 to 6 of turnpike, which report the state of a run, become 0.
//   - After a command with an & at the end of its line the session waits until the command
//     prints something, and after `turnpike dev &` until it is ready, unless the page
//     redirects the output to a file. approve, deny and answer wait until the run waits,
//     as a person would.
package docs
