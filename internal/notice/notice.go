// Package notice has the licences of everything that Turnpike's binaries contain.
package notice

import _ "embed"

// ThirdParty lists the works of others in the binaries, and the text of each of their licences.
// hack/licenses writes it; make verify fails if it is out of date.
//
//go:embed third-party.txt
var ThirdParty string
