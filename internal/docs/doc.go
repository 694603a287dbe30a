// Package docs tests what the docs say: every command of every page is run, every
// YAML and JSON is read as what it is, and every agent of examples/agents runs and
// ends as the table of the test says.
//
// How a page's blocks of code are marked is written in CONTRIBUTING.md; the test of a
// page is a session: a copy of the repository's root in a temporary directory, with
// turnpike on the PATH, a deployment beside it unless the page starts one itself (the
// one of examples/agents/README.md), and the blocks of commands one after the other in
// one shell, which knows TURNPIKE_URL. Services find NATS as a newcomer's do, by the file
// that `turnpike dev` writes. What a session changes:
//
//   - Every port that a page names on 127.0.0.1 or localhost is another, free one, in
//     the commands and in the files of examples, so pages run side by side.
//   - turnpike and `go run ./…` are built once.
//   - `make` is asked whether it has the target, and `go test` whether it has the
//     packages; neither is run.
//   - Exit codes 3 to 6 of turnpike, which say how a run stands, are 0.
//   - A command with an & at the end of its line is waited for until it says something,
//     and `turnpike dev &` until it is ready, unless what it says goes into a file of
//     the page's. approve, deny and answer wait until the run does, as a person would.
package docs
