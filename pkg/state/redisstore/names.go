package redisstore

// What Go and the scripts call by one name. The places of a reply are typed by the reply
// that they are of, so that none is read from another; TestScripts holds the scripts to
// these lists.

// The fields of a run's hash. A script reads a field into a variable that is called like
// the constant, without its prefix.
const (
	fieldHeader        = "h"  // state.State without its log and what is in fixed
	fieldFixed         = "hf" // what is fixed at submission of it
	fieldStatus        = "st" // of the run; the header has that of the last commit
	fieldVersion       = "ver"
	fieldToken         = "tok"   // of the claim
	fieldOwner         = "own"   // the worker that holds the lease
	fieldLease         = "lease" // when it ends (ms)
	fieldAttempts      = "att"   // claims of this version
	fieldEager         = "eag"   // the token of an eager claim until it is renewed, or something else tells that it is used
	fieldStarted       = "sa"    // when the run was first claimed (ms)
	fieldAbort         = "ab"    // state.Abort as JSON, or ''
	fieldAbortReach    = "abr"   // signals in the inbox that came before the abort
	fieldAwaits        = "aw"    // awaited names as a JSON list, or ''
	fieldCommitID      = "cid"   // of the last commit, like the next two
	fieldCommitStatus  = "cst"
	fieldCommitVersion = "cver"
	fieldLane          = "ln"
	fieldFinalized     = "fin"  // entries when the run was last finalized
	fieldBase          = "base" // committed entries
	fieldWake          = "wake" // when a wait ends (ms), 0 never
	fieldSweeps        = "sw"   // of this version
	fieldPaused        = "pz"   // claims of this version that ended with a pause of their worker
	fieldEvicted       = "ev"   // tokens of leases that were ended, with the versions of their turns
	fieldEvictedAt     = "eva"  // the version of the turn and when the latest of these was ended (ms), or none
	fieldQueuedAt      = "qa"   // when the run was queued (ms), 0 if no message was published then
	fieldFormat        = "f"    // of the header
	fieldInboxBytes    = "ib"   // of the signals in the inbox, encoded
	fieldListed        = "li"   // the statuses under which the index of lists has the run
	fieldKey           = "ik"   // the name of the key that holds the idempotency key; none if it has none
	fieldTenant        = "tn"   // of the run
	fieldSealed        = "sl"   // the token of a deletion that has begun; none or '' if none has
	fieldMarker        = "gone" // 1 in what a deletion leaves: that, the tenant, and nothing else
)

// The fields of an agent's hash; a version's have its number behind them.
const (
	agentFieldLatest     = "latest"
	agentFieldDeleted    = "deleted" // 0 or 1
	agentFieldDefinition = "v"
	agentFieldCreated    = "t" // ms
	agentFieldToken      = "k" // of the call that made it
)

// bucketFields are the fields of the hash of a rate limit, see quota.Bucket.
var bucketFields = []string{"at", "clk", "spd", "rse", "unt", "ur", "ut", "rr", "rt", "late"}

// verdictPlace is what a script says that has nothing else to say: ok, or why not.
type verdictPlace int

const (
	verdictWord   verdictPlace = iota // ok, missing, deleted, deleting, newer, fenced, gap, unheard, exists, seen, conflict, none, busy, behind
	verdictLength                     // gap: entries in the log
)

type closedPlace int

const (
	closedWord   closedPlace = iota // closed, terminal, live
	closedStatus                    // of the run
	closedName                      // closed: of the wait
)

type fullPlace int

const (
	fullWord fullPlace = iota // full
	fullSignals
	fullInboxBytes
)

type claimPlace int

const (
	claimOutcome claimPlace = iota
	claimStatus
	claimVersion
	claimLane
	claimFinalized
	claimLength
	claimBusy // ms
	claimClock
	claimHeader // the rest if it was claimed
	claimBase
	claimAttempts
	claimStarted
	claimAbort
	claimKnown
	claimTail
	claimJournal
	claimInbox
	claimFixed // as header
	claimPaused
	claimTakenOver // ms, 0 if no lease was ended
)

type recordPlace int

const (
	recordWord recordPlace = iota
	recordAbort
)

type renewPlace int

const (
	renewWord renewPlace = iota
	renewAbort
)

type commitPlace int

const (
	commitWord commitPlace = iota
	commitStatus
	commitVersion
	commitApplied // 0: it was repeated
	commitNoisy
	commitClaimed
)

type createPlace int

const (
	createWord createPlace = iota
	createNoisy
)

type takenPlace int

const (
	takenWord takenPlace = iota
	takenOwner
)

type wakePlace int

const (
	wakeWord wakePlace = iota
	wakePublish
	wakeVersion
	wakeLane
	wakeTenant
	wakeNoisy // of a signal
)

type duePlace int

const (
	dueWhat duePlace = iota // turn, covered or finalize
	dueVersion
	dueLane
	dueSweeps
	dueFinalized
	dueNoisy
	dueTenant
)

type agentPlace int

const (
	agentVersion agentPlace = iota
	agentCreated
)

type admitPlace int

const (
	admitWord admitPlace = iota // ok
	admitEnded
	admitRefused
)

type markPlace int

const markReached markPlace = 0

type sealPlace int

const (
	sealWord sealPlace = iota // ok
	sealAdmitted
)

type takePlace int

const (
	takeWait takePlace = iota // µs
	takeReservation
	takePaused
)

type pausePlace int

const pauseNow pausePlace = 0 // µs

// What is read of hashes without a script, in the order of places.

type storedPlace int

const (
	storedHeader storedPlace = iota
	storedStatus
	storedStarted
	storedFixed
	storedKey
	storedMarker
	storedSealed
)

var storedFields = []string{storedMarker: fieldMarker, storedSealed: fieldSealed, storedHeader: fieldHeader, storedStatus: fieldStatus, storedStarted: fieldStarted, storedFixed: fieldFixed, storedKey: fieldKey}

type loggedPlace int

const (
	loggedStatus loggedPlace = iota
	loggedFormat
	loggedMarker
)

var loggedFields = []string{loggedMarker: fieldMarker, loggedStatus: fieldStatus, loggedFormat: fieldFormat}

type latestPlace int

const (
	latestVersion latestPlace = iota
	latestDeleted
)

var latestFields = []string{latestVersion: agentFieldLatest, latestDeleted: agentFieldDeleted}

type definitionPlace int

const (
	definitionText definitionPlace = iota
	definitionCreated
)

func definitionFields(version string) []string {
	return []string{definitionText: agentFieldDefinition + version, definitionCreated: agentFieldCreated + version}
}
