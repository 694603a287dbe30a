package main

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/alecthomas/kong"
)

// completionCmd prints the completion script of a shell.
type completionCmd struct {
	Shell string `arg:"" enum:"bash,zsh,fish" help:"${enum}."`
}

// scripts are the completion scripts by shell. They call the hidden command complete.
var scripts = map[string]string{
	"bash": `_turnpike() {
	local IFS=$'\n'
	COMPREPLY=($(turnpike complete -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null))
}
complete -o default -F _turnpike turnpike`,
	"zsh": `#compdef turnpike
_turnpike() {
	local -a found
	found=(${(f)"$(turnpike complete -- "${(@)words[2,CURRENT]}" 2>/dev/null)"})
	if (( $#found )); then compadd -a found; else _files; fi
}
compdef _turnpike turnpike`,
	"fish": `complete -c turnpike -a '(turnpike complete -- (commandline -opc)[2..] (commandline -ct) 2>/dev/null)'`,
}

func (c *completionCmd) Run(e *env) error {
	_, err := fmt.Fprintln(e.out, scripts[c.Shell])
	return err
}

// completeCmd prints the completions of the last of several words, one per line.
type completeCmd struct {
	Words []string `arg:"" optional:"" passthrough:""`
}

// completeFor bounds the request to the gateway that completes a name.
const completeFor = 500 * time.Millisecond

func (c *completeCmd) Run(e *env, k *kong.Context) error {
	words := c.Words
	if len(words) > 0 && words[0] == "--" {
		words = words[1:]
	}
	if len(words) == 0 {
		words = []string{""}
	}
	for _, found := range candidates(e, k.Model.Node, words[:len(words)-1], words[len(words)-1]) {
		fmt.Fprintln(e.out, found)
	}
	return nil
}

// candidates returns the completions of word, which follows the words in before.
func candidates(e *env, at *kong.Node, before []string, word string) []string {
	flags := at.Flags
	var value *kong.Flag // the flag whose value is next, or nil
	place := 0
	for _, w := range before {
		switch {
		case value != nil:
			value = nil
		case strings.HasPrefix(w, "-"):
			i := slices.IndexFunc(flags, func(f *kong.Flag) bool { return w == "--"+f.Name || w == "-"+string(f.Short) })
			if i >= 0 && !flags[i].IsBool() {
				value = flags[i]
			}
		default:
			i := slices.IndexFunc(at.Children, func(n *kong.Node) bool { return n.Name == w })
			if i < 0 {
				place++
				break
			}
			at = at.Children[i]
			flags = append(slices.Clip(flags), at.Flags...)
		}
	}
	var found []string
	switch {
	case value != nil:
		found = values(e, value.Value)
	case strings.HasPrefix(word, "-"):
		for _, f := range flags {
			if !f.Hidden {
				found = append(found, "--"+f.Name)
			}
		}
	case len(at.Children) > 0:
		for _, n := range at.Children {
			if !n.Hidden {
				found = append(found, n.Name)
			}
		}
	case place < len(at.Positional):
		found = values(e, at.Positional[place])
	}
	return slices.DeleteFunc(found, func(s string) bool { return s == "" || !strings.HasPrefix(s, word) })
}

// values returns the possible values of an argument or flag that are known.
func values(e *env, v *kong.Value) []string {
	if v.Enum != "" {
		return v.EnumSlice()
	}
	ctx, cancel := context.WithTimeout(e.ctx, completeFor)
	defer cancel()
	var found []string
	switch v.Tag.Get("complete") {
	case "run":
		page, err := e.client.List(ctx, url.Values{"limit": {"50"}})
		if err != nil {
			return nil // a completion cannot show an error
		}
		for _, r := range page.Items {
			found = append(found, r.ID)
		}
	case "agent":
		agents, err := e.client.Agents(ctx)
		if err != nil {
			return nil
		}
		for _, a := range agents {
			found = append(found, a.Name)
		}
	}
	return found
}
