package redisstore

// Names shared by Go and the scripts. The places of a reply have the type of the reply, so that no place is
// used for another reply; TestScripts checks the scripts against these lists.

// The fields of a run's hash. A script reads a field into a variable with the name of the constant, without
// its prefix.
const (
	fieldHeader       = "h"  // state.State without its log and without the part in fixed
	fieldFixed        = "hf" // the part of state.State that is fixed at submission
	fieldStatus       = "st" // of the run; the header has that of the last commit
	fieldVersion      = "ver"
	fieldToken        = "tok"   // of the claim
	fieldOwner        = "own"   // the worker that holds the lease
	fieldLease        = "lease" // the end of the lease (ms)
	fieldAttempts     = "att"   // claims of this version
	fieldEager        = "eag"   // 1 for an eager claim until a renewal, a record or another write shows that it is in use
	fieldStarted      = "sa"    // time of the first claim (ms)
	fieldAbort        = "ab"    // state.Abort as JSON, or ''
	fieldAbortReach   = "abr"   // signals in the inbox that came before the abort
	fieldInterrupt    = "itr"   // state.Abort as JSON, if an interrupt has arrived since the turn in flight was claimed
	fieldAwaits       = "aw"    // awaited names as a JSON list, or ''
	fieldCommitID     = "cid"   // of the last commit, like the next one
	fieldCommitStatus = "cst"   // the resulting status, see state.Committed
	fieldLane         = "ln"
	fieldFinalized    = "fin"  // log entries at the time the run was last finalized
	fieldBase         = "base" // committed entries
	fieldCheckpoint   = "cp"   // number of the last checkpoint in the committed log; missing if it has none
	fieldLogBytes     = "lb"   // state.State.LogBytes of the header if it is more than smallLog; missing or '' otherwise
	fieldWake         = "wake" // end of the wait (ms), 0 for never
	fieldSweeps       = "sw"   // sweeps that have returned the run, see state.Due.Sweeps
	fieldPaused       = "pz"   // claims of this version that ended with a pause of their worker
	fieldEvicted      = "ev"   // tokens of leases that were ended, with the versions of their turns
	fieldEvictedAt    = "eva"  // the version of the turn and the time of the latest of these (ms), or missing
	fieldQueuedAt     = "qa"   // time at which the run was queued (ms), 0 if no message was published then
	fieldFormat       = "f"    // of the header
	fieldInboxBytes   = "ib"   // of the signals in the inbox, encoded
	fieldListed       = "li"   // the statuses under which the index of lists has the run
	fieldIndexed      = "ix"   // the names of the run's metadata in the index of lists, one per line; missing if it has none
	fieldKey          = "ik"   // the name of the idempotency key, see record.KeyName; missing if it has none
	fieldTenant       = "tn"   // of the run
	fieldSealed       = "sl"   // the token of a deletion that has begun; missing or '' otherwise
	fieldMarker       = "gone" // 1 in the marker that a deletion leaves, which has only this and the tenant
)

// The fields of an agent's hash; those of a version end in its number.
const (
	agentFieldLatest     = "latest"
	agentFieldDeleted    = "deleted" // 0 or 1
	agentFieldDefinition = "v"
	agentFieldDeletedBy  = "del" // the token of the call that deleted it
	agentFieldCreated    = "t"   // ms
	agentFieldToken      = "k"   // of the call that made it
)

// bucketFields are the fields of the hash of a rate limit, see quota.Bucket.
var bucketFields = []string{"at", "clk", "spd", "rse", "unt", "ur", "ut", "rr", "rt", "late"}

// verdictPlace is the reply of a script with no other result: ok, or the reason for refusing.
type verdictPlace int

const (
	verdictWord   verdictPlace = iota // ok, missing, deleted, deleting, newer, fenced, gap, unheard, exists, seen, conflict, none, busy, behind, large, changed
	verdictLength                     // gap: entries in the log; large: bytes of the header
)

type closedPlace int

const (
	closedWord   closedPlace = iota // closed, busy, terminal, live
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
	claimHeader // the rest only if it was claimed
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
	claimFrom      // log entries before tail
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
	commitApplied // 0 for a repetition
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

type firstsPlace int

const firstsTexts firstsPlace = 0

type listPlace int

const (
	listSet listPlace = iota
	listRuns
	listHeaders // of these: each stored, or verdict
)

type sealPlace int

const (
	sealWord sealPlace = iota // ok
	sealAdmitted
)

type timersPlace int

const (
	timersWord timersPlace = iota // ok
	timersVersion
	timersClaimed
)

type figuresPlace int

const (
	figuresWord figuresPlace = iota // ok, seen
	figuresMark
)

type takePlace int

const (
	takeWait takePlace = iota // µs
	takeReservation
	takePaused
)

type pausePlace int

const pauseNow pausePlace = 0 // µs

// Fields of hashes that are read without a script, in the order of places.

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

type logPlace int

const (
	logWord logPlace = iota // ok
	logEntries
	logMore
)

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
	definitionToken
)

func definitionFields(version string) []string {
	return []string{definitionText: agentFieldDefinition + version, definitionCreated: agentFieldCreated + version, definitionToken: agentFieldToken + version}
}
