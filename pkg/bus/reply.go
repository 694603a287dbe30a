package bus

import (
	"errors"
	"fmt"
	"strings"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

// ErrReplySubject reports a subject that may not receive replies.
var ErrReplySubject = errors.New("the subject for replies is not valid")

// maxReplySubject bounds a subject from outside, in bytes. A server drops the connection of a
// client that sends a subject longer than its max_control_line, by default 4096.
const maxReplySubject = 1024

// CheckReply refuses a subject that is malformed, too long or reserved by NATS ($), and PREFIX with all subjects below
// it, except those below PREFIX.reply: a submitter could otherwise send commands to the server, or to the workers of
// the deployment. A tenant other than the default one may receive replies only below PREFIX.t.TENANT.reply; an empty
// tenant is the default one. The error wraps [ErrReplySubject].
func CheckReply(prefix, tenant, subject string) error {
	own := prefix + ".reply."
	if tenant != "" && tenant != state.DefaultTenant {
		own = prefix + ".t." + tenant + ".reply."
	}
	fits := own + "done"
	if own == prefix+".reply." {
		fits = "orders.done or " + fits
	}
	switch {
	case len(subject) > maxReplySubject:
		return fmt.Errorf("%w: it has %d bytes, at most %d are allowed: use a shorter one", ErrReplySubject, len(subject), maxReplySubject)
	case strings.HasPrefix(subject, "$"):
		return fmt.Errorf("%w: %q is reserved by NATS: use one such as %s", ErrReplySubject, subject, fits)
	case strings.ContainsAny(subject, "*> \t\r\n\x00"), strings.Contains("."+subject+".", ".."):
		return fmt.Errorf("%w: %q has an empty part, spaces, * or >: use one such as %s", ErrReplySubject, subject, fits)
	case strings.HasPrefix(subject, own):
		return nil
	case own != prefix+".reply.":
		return fmt.Errorf("%w: tenant %s may receive replies only below %s: use a subject that begins with it", ErrReplySubject, tenant, own)
	case subject == prefix || strings.HasPrefix(subject, prefix+"."):
		return fmt.Errorf("%w: the subjects below %s are reserved: use a subject that begins with %s, or one elsewhere", ErrReplySubject, prefix, own)
	default:
		return nil
	}
}
