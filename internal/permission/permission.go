// Package permission generates the permissions of a deployment's users at NATS and Redis, by role.
package permission

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Role is the role of a user of NATS or Redis.
type Role string

// The roles. Of Client, Tool and Observer there is one for each tenant.
const (
	Gateway  Role = "gateway"
	Worker   Role = "worker"
	Client   Role = "client"   // a service that submits and aborts runs
	Tool     Role = "tool"     // a service with tools or hooks
	Observer Role = "observer" // who only reads
)

// Scope is the part of a deployment that permissions cover.
type Scope struct {
	Prefix string // of the deployment
	Domain string // of JetStream; empty is that of the server

	// Tenant of a client, a tool or an observer. Empty is the default tenant; for an observer it
	// means all tenants and the servers' own data.
	Tenant string

	// Tools that a service has, by name; without, all that the tenant's tools may be called.
	Tools []string

	// Also are subjects outside the prefix that gateways and workers may publish to: those
	// of hooks, and those where replies of the default tenant go.
	Also []string
}

// defaultTenant is the one whose subjects have no tenant in them.
const defaultTenant = "default"

var (
	prefixPattern = regexp.MustCompile(`^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*$`)
	tenantPattern = regexp.MustCompile(`^[a-z0-9-]{1,40}$`)
	toolPattern   = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}$`)
	subject       = regexp.MustCompile(`^[^\s".$>*]+(\.[^\s".>*]+)*(\.>)?$`)
)

func (s Scope) validate(r Role) error {
	switch {
	case !prefixPattern.MatchString(s.Prefix):
		return fmt.Errorf("prefix (--prefix, TURNPIKE_PREFIX) is %q: use letters, digits, _ and -, in parts joined by dots", s.Prefix)
	case s.Domain != "" && !toolPattern.MatchString(s.Domain):
		return fmt.Errorf("domain (--nats-domain, TURNPIKE_NATS_DOMAIN) is %q: use 1 to 64 letters, digits, _ and -", s.Domain)
	case s.Tenant != "" && !tenantPattern.MatchString(s.Tenant):
		return fmt.Errorf("tenant (--tenant, TURNPIKE_TENANT, or :TENANT in --user) is %q: use 1 to 40 lowercase letters, digits and hyphens", s.Tenant)
	case s.Tenant != "" && (r == Gateway || r == Worker):
		return fmt.Errorf("a %s serves all tenants: omit the tenant (--tenant and TURNPIKE_TENANT, or :TENANT in --user)", r)
	case len(s.Tools) > 0 && r != Tool:
		return fmt.Errorf("--tool is only for the role tool, and the role is %s: omit --tool", r)
	case len(s.Also) > 0 && r != Gateway && r != Worker:
		return fmt.Errorf("--also is only for the roles gateway and worker, and the role is %s: omit --also", r)
	}
	for _, t := range s.Tools {
		if !toolPattern.MatchString(t) {
			return fmt.Errorf("tool (--tool) is %q: use 1 to 64 letters, digits, _ and -", t)
		}
	}
	for _, a := range s.Also {
		if !subject.MatchString(a) || strings.HasPrefix(a, s.Prefix+".") || strings.HasPrefix(a, "_INBOX") {
			return fmt.Errorf("subject (--also) is %q: name one that does not begin with %s., _INBOX or $, and has no spaces, quotes, empty parts or *, and > only as its last part", a, s.Prefix)
		}
	}
	return nil
}

// NATS lists the subjects that a user may publish and subscribe to. Deny takes precedence over
// Allow.
type NATS struct {
	Publish   Subjects `json:"publish"`
	Subscribe Subjects `json:"subscribe"`

	// Inbox is the required prefix of this user's reply subjects.
	Inbox string `json:"inbox"`
}

// Subjects are those that are allowed, but not if they are denied.
type Subjects struct {
	Allow []string `json:"allow"`
	Deny  []string `json:"deny,omitempty"`
}

// ForNATS returns the permissions of a role.
func ForNATS(r Role, s Scope) (NATS, error) {
	if err := s.validate(r); err != nil {
		return NATS{}, err
	}
	switch r {
	case Gateway, Worker:
		return s.process(r), nil
	case Client:
		inbox := "_INBOX_" + s.tenant()
		return NATS{
			Publish:   Subjects{Allow: s.own("submit.*", "abort.*")},
			Subscribe: Subjects{Allow: append(s.own("events.*", "reply.>"), inbox+".>")}, Inbox: inbox,
		}, nil
	case Tool:
		return s.tool(), nil
	case Observer:
		return s.observer(), nil
	default:
		return NATS{}, fmt.Errorf("role is %q: use gateway, worker, client, tool or observer", r)
	}
}

// process returns the permissions of a gateway or a worker: all subjects of the deployment, except
// those of other roles and the deletion of streams.
func (s Scope) process(r Role) NATS {
	tools := append(s.all("tool.>", "hook.>"), s.Prefix+".t.*.srv.>")
	n := NATS{
		Publish: Subjects{
			Allow: append([]string{s.Prefix + ".>", s.api(">"), "$JS.ACK.>"}, s.Also...),
			Deny:  s.apis("STREAM.SNAPSHOT.>", "STREAM.RESTORE.>", "STREAM.PEER.REMOVE.>", "STREAM.LEADER.STEPDOWN.>", "ACCOUNT.>", "SERVER.>", "META.>"),
		},
		Subscribe: Subjects{Allow: []string{s.Prefix + ".>", "_INBOX.>"}, Deny: tools},
		Inbox:     "_INBOX",
	}
	// Streams of turns beyond the first are deleted when they are drained, and those of tenants
	// when the tenant is: NATS permissions know no patterns within a name.
	for _, name := range []string{"TURNS", "STICKY", "LAYOUT", "MARK", "SUBMIT", "CONTROL", "DEAD", "QUOTA", "AUDIT"} {
		n.Publish.Deny = append(n.Publish.Deny, s.apis("STREAM.DELETE."+s.stream(name), "STREAM.PURGE."+s.stream(name))...)
	}
	for _, name := range []string{"STATE", "EVENTS"} { // runs are forgotten by a purge of their subjects
		n.Publish.Deny = append(n.Publish.Deny, s.api("STREAM.DELETE."+s.stream(name)))
	}
	for _, name := range []string{"TURNS", "STICKY", "LAYOUT", "MARK", "SUBMIT", "CONTROL", "STATE", "EVENTS", "QUOTA", "AUDIT"} {
		n.Publish.Deny = append(n.Publish.Deny, s.api("STREAM.MSG.DELETE."+s.stream(name)))
	}
	if r == Gateway {
		n.Publish.Allow = append(n.Publish.Allow, "$SRV.INFO") // who saves a definition is told of services that nobody runs
		n.Publish.Deny = append(append(s.all("tool.>", "hook.>"), s.Prefix+".t.*.srv.PING", s.Prefix+".t.*.srv.STATS", s.Prefix+".t.*.srv.*.>"), n.Publish.Deny...)
		return n
	}
	n.Publish.Allow = append(n.Publish.Allow, "$SRV.INFO", "$SRV.STATS", "_INBOX.*.cancel") // of other tenants they are below the prefix
	n.Publish.Deny = append(s.all("submit.>"), n.Publish.Deny...)
	return n
}

// tool returns the permissions of a service. It may publish to all inboxes for replies of its tenant's services: below
// the tenant's root, or with the default tenant all inboxes of gateways and workers, and those of observers of the
// default tenant and of the whole deployment. It may not publish to inboxes of clients. The permission is this wide
// because NATS would otherwise have to track permitted replies, at a cost that grows with the calls. But the names of
// inboxes are random, and the service learns only those of requests to its subjects and of cancelled calls.
func (s Scope) tool() NATS {
	allow := s.own("tool.*")
	if len(s.Tools) > 0 {
		allow = nil
		for _, t := range s.Tools {
			allow = append(allow, s.own("tool."+t)...)
		}
	}
	allow = append(allow, s.own("hook.>")...)
	if s.tenant() != defaultTenant {
		return NATS{
			Publish:   Subjects{Allow: s.own("inbox.>")},
			Subscribe: Subjects{Allow: append(allow, s.own("srv.>", "inbox.*.cancel")...)},
		}
	}
	allow = append(allow, "$SRV.>")
	return NATS{
		Publish:   Subjects{Allow: []string{"_INBOX.>", observersInbox + ".>", "_INBOX_observer_" + defaultTenant + ".>"}},
		Subscribe: Subjects{Allow: append(allow, "_INBOX.*.cancel")},
	}
}

// observersInbox is that of observers of the deployment. No tenant's name has a _, so no client
// has it.
const observersInbox = "_INBOX_all_observer"

func (s Scope) observer() NATS {
	if s.Tenant != "" {
		inbox := "_INBOX_observer_" + s.Tenant
		n := NATS{Subscribe: Subjects{Allow: append(s.own("events.*"), inbox+".>")}, Inbox: inbox}
		if s.Tenant == defaultTenant {
			n.Publish.Allow = []string{"$SRV.INFO", "$SRV.STATS"}
			return n
		}
		n.Publish.Allow = s.own("srv.INFO", "srv.STATS")
		n.Subscribe.Allow = append(n.Subscribe.Allow, s.own("inbox.srv.*")...)
		return n
	}
	n := NATS{Inbox: observersInbox}
	n.Subscribe.Allow = append(s.all("events.*", "dead.*", "abort.*"), s.Prefix+".live.*", s.Prefix+".grown.*", s.Prefix+".presence.*", s.Prefix+".t.*.inbox.srv.*", n.Inbox+".>")
	// No question to JetStream, not even one that only reads: it answers to any subject that the
	// asker names for the reply, in the name of the server. An empty answer, to the subject that
	// deletes a stream, deletes it.
	n.Publish.Allow = []string{"$SRV.PING", "$SRV.INFO", "$SRV.STATS", s.Prefix + ".t.*.srv.INFO", s.Prefix + ".t.*.srv.STATS"}
	return n
}

func (s Scope) tenant() string {
	if s.Tenant == "" {
		return defaultTenant
	}
	return s.Tenant
}

// own returns subjects of the tenant.
func (s Scope) own(subjects ...string) []string {
	root := s.Prefix + "."
	if s.tenant() != defaultTenant {
		root += "t." + s.Tenant + "."
	}
	all := make([]string, len(subjects))
	for i, name := range subjects {
		all[i] = root + name
	}
	return all
}

// all returns subjects of all tenants.
func (s Scope) all(subjects ...string) []string {
	var all []string
	for _, name := range subjects {
		all = append(all, s.Prefix+"."+name, s.Prefix+".t.*."+name)
	}
	return all
}

func (s Scope) api(question string) string {
	if s.Domain == "" {
		return "$JS.API." + question
	}
	return "$JS." + s.Domain + ".API." + question
}

func (s Scope) apis(questions ...string) []string {
	all := make([]string, len(questions))
	for i, q := range questions {
		all[i] = s.api(q)
	}
	return all
}

func (s Scope) stream(name string) string {
	return strings.ToUpper(strings.ReplaceAll(s.Prefix, ".", "_")) + "_" + name
}

// String returns the permissions in the form of a NATS configuration's user.
func (n NATS) String() string {
	var b strings.Builder
	b.WriteString("permissions {\n")
	write := func(what string, s Subjects) {
		fmt.Fprintf(&b, "  %s {\n", what)
		for _, list := range []struct {
			name     string
			subjects []string
		}{{"allow", s.Allow}, {"deny", s.Deny}} {
			if len(list.subjects) == 0 {
				continue
			}
			fmt.Fprintf(&b, "    %s: [\n", list.name)
			for _, name := range list.subjects {
				fmt.Fprintf(&b, "      %q\n", name)
			}
			b.WriteString("    ]\n")
		}
		b.WriteString("  }\n")
	}
	write("publish", n.Publish)
	write("subscribe", n.Subscribe)
	b.WriteString("}\n")
	return b.String()
}

// RedisDefaultUser is the line of an ACL file for Redis's default user. No one can log in as this user, but it still
// has all rights: at its start Redis reads its append-only log as this user, and skips transactions that the user may
// not make.
const RedisDefaultUser = "user default off resetpass ~* &* +@all\n"

// ForRedis returns the rules of the Redis user of a gateway, a worker, or an observer, who only reads, as a line of an
// ACL file or of redis.conf. The line contains only the hash of the password; without a password the user cannot log
// in. It is an error if r is another role, or if prefix or user is not valid.
func ForRedis(r Role, prefix, user, password string) (string, error) {
	if !prefixPattern.MatchString(prefix) {
		return "", fmt.Errorf("prefix (--prefix, TURNPIKE_PREFIX) is %q: use letters, digits, _ and -, in parts joined by dots", prefix)
	}
	if !toolPattern.MatchString(user) {
		return "", fmt.Errorf("user is %q: use 1 to 64 letters, digits, _ and -", user)
	}
	if !slices.Contains([]Role{Gateway, Worker, Observer}, r) {
		return "", fmt.Errorf("role %q has no rights in Redis: use gateway, worker or observer", r)
	}
	rules := []string{"user", user, "on"}
	if password != "" {
		sum := sha256.Sum256([]byte(password))
		rules = append(rules, "#"+hex.EncodeToString(sum[:]))
	}
	keys := "~" + prefix + ":*"
	commands := []string{"+@read", "+@write", "+@transaction", "+@connection", "-@scripting", "+eval", "+evalsha", "+script|load", "+script|exists"}
	if r == Observer {
		keys = "%R" + keys
		commands = []string{"+@read", "+@connection"}
	}
	rules = append(rules, "resetkeys", keys, "resetchannels", "-@all")
	rules = append(rules, commands...)
	// SCAN and RANDOMKEY take no key, so no key pattern limits them: they name every key of the server.
	rules = append(rules, "-@dangerous", "-scan", "-randomkey", "+info", "+time", "+wait", "+cluster|slots", "+cluster|shards", "+cluster|nodes", "+command")
	return strings.Join(rules, " ") + "\n", nil
}
