package natsbus

import (
	"strconv"
	"strings"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

// names are the names of a deployment's subjects and streams.
type names struct{ prefix string }

func (n names) subject(parts ...string) string {
	all := make([]byte, 0, 128)
	all = append(all, n.prefix...)
	for _, p := range parts {
		all = append(append(all, '.'), p...)
	}
	return string(all)
}

// subjectOf returns a subject of a tenant; an empty name means the default tenant, whose subjects
// have no tenant in them.
func (n names) subjectOf(tenant string, parts ...string) string {
	if tenant == "" || tenant == state.DefaultTenant {
		return n.subject(parts...)
	}
	return n.subject(append([]string{"t", tenant}, parts...)...)
}

// tenantOf returns the tenant of a subject.
func (n names) tenantOf(subject string) string {
	rest, ok := strings.CutPrefix(subject, n.prefix+".t.")
	if !ok {
		return state.DefaultTenant
	}
	tenant, _, _ := strings.Cut(rest, ".")
	return tenant
}

func (n names) stream(name string) string {
	return strings.ToUpper(strings.ReplaceAll(n.prefix, ".", "_")) + "_" + name
}

// token encodes a name as one token of a subject.
func token(name string) string {
	if name == "" {
		return "_"
	}
	return strings.Map(func(r rune) rune {
		if r == '.' || r == '*' || r == '>' || r <= ' ' || r == 0x7f {
			return '_'
		}
		return r
	}, name)
}

func lastToken(subject string) string { return subject[strings.LastIndexByte(subject, '.')+1:] }

// streamOf returns the name of a tenant's stream.
func (n names) streamOf(tenant, kind string) string {
	if tenant == "" || tenant == state.DefaultTenant {
		return n.stream(kind)
	}
	return n.stream(kind + "_" + tenant)
}

// closedTenant returns the only subject of a closed stream, which no process publishes to.
func (n names) closedTenant(tenant, kind string) []string {
	return []string{n.subjectOf(tenant, "closed", strings.ToLower(kind))}
}

// tenantKind returns the tenant of a subject and the kind of its stream. The kind is empty if the
// tenant has none for it, or is the default tenant.
func (n names) tenantKind(subject string) (tenant, kind string) {
	tenant = n.tenantOf(subject)
	if tenant == state.DefaultTenant {
		return tenant, ""
	}
	word, _, _ := strings.Cut(strings.TrimPrefix(subject, n.subjectOf(tenant, "")), ".")
	return tenant, kindOf[word]
}

// intakeKind returns the kind of a stream, if it belongs to the intake.
func (n names) intakeKind(name string) (kind string, ok bool) {
	for _, kind := range intakeKinds {
		tenant, ok := strings.CutPrefix(name, n.stream(kind))
		if ok && (tenant == "" || tenant[0] == '_' && tenantName.MatchString(tenant[1:])) {
			return kind, true
		}
	}
	return "", false
}

// turnStream returns the name of a stream of turns.
func (n names) turnStream(number int) string {
	if number == firstStream {
		return n.stream("TURNS")
	}
	return n.stream("TURNS_" + strconv.Itoa(number))
}

// turnSubject returns a subject of a stream of turns. After the prefix, those of the first stream begin with the word
// turn, and those of stream N with turns.N, because subjects of streams must not overlap.
func (n names) turnSubject(number int, parts ...string) string {
	all := make([]byte, 0, 128)
	all = append(append(all, n.prefix...), ".turn"...)
	if number != firstStream {
		all = strconv.AppendInt(append(all, "s."...), int64(number), 10)
	}
	for _, p := range parts {
		all = append(append(all, '.'), p...)
	}
	return string(all)
}

// closedSubject returns the only subject of a stream that is drained. No process publishes to it.
func (n names) closedSubject(number int) string { return n.turnSubject(number, "closed") }

// hintSubject returns the subject on which a process announces a new layout, so that all adopt it
// at the same time. The hint may be lost.
func (n names) hintSubject() string { return n.subject("layout", "changed") }
