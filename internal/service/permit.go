package service

import (
	"context"
	"strings"

	"github.com/turnpike-dev/turnpike/internal/access"
	"github.com/turnpike-dev/turnpike/pkg/api"
)

// Operation is the name of a request, for the rights of callers and for the audit.
type Operation string

// The operations.
const (
	Submit         Operation = "run.submit"
	SubmitBatch    Operation = "batch.submit"
	SubmitDraft    Operation = "run.draft"
	Fork           Operation = "run.fork"
	Send           Operation = "run.signal"
	Cancel         Operation = "run.cancel"
	CancelMany     Operation = "run.cancel_many"
	DeleteRun      Operation = "run.delete"
	PutAgent       Operation = "agent.put"
	DeleteAgent    Operation = "agent.delete"
	PublishDraft   Operation = "agent.publish"
	DiscardDraft   Operation = "agent.discard"
	Replay         Operation = "dead_letter.replay"
	TestWebhook    Operation = "webhook.test"
	Accept         Operation = "restore.accept"
	Abandon        Operation = "restore.abandon"
	CreateKey      Operation = "key.create"
	RevokeKey      Operation = "key.revoke"
	PutHook        Operation = "hook.put"
	DeleteHook     Operation = "hook.delete"
	DeliverHook    Operation = "hook.deliver"
	PutTrigger     Operation = "trigger.put"
	DeleteTrigger  Operation = "trigger.delete"
	DeliverTrigger Operation = "trigger.deliver"
	PutSchedule    Operation = "schedule.put"
	DeleteSchedule Operation = "schedule.delete"
	PauseSchedule  Operation = "schedule.pause"
	ResumeSchedule Operation = "schedule.resume"
	RunSchedule    Operation = "schedule.run"
	FireSchedule   Operation = "schedule.fire"
	PutMemory      Operation = "memory.put"
	DeleteMemory   Operation = "memory.delete"
	PutFile        Operation = "file.put"
	DeleteFile     Operation = "file.delete"
	CreateToken    Operation = "token.create"
	RotateTokens   Operation = "token.rotate"
	PutTenant      Operation = "tenant.put"
	DeleteTenant   Operation = "tenant.delete"

	PutEvaluation    Operation = "evaluation.put"
	DeleteEvaluation Operation = "evaluation.delete"

	Read        Operation = "read"      // the configuration and records of a tenant
	ReadRuns    Operation = "read.run"  // runs, also as a caller that is bound to a user
	ReadLong    Operation = "read.long" // a stream of runs
	ReadWorkers Operation = "read.workers"
	ReadQueues  Operation = "read.queues"
	ReadMetrics Operation = "read.metrics"
	ReadRestore Operation = "read.restore"
	ReadKeys    Operation = "read.keys"
	ReadTenants Operation = "read.tenants"
	ReadAudit   Operation = "read.audit"
)

// right has the roles that permit an operation, and its properties.
type right struct {
	roles   []access.Role // one of these is required
	shared  string        // what it reads of all tenants, for which the caller needs the role for tenant *; or empty
	changes bool          // not permitted in a suspended tenant
	noted   bool          // the audit records the operation
	lasts   bool          // the operation makes many calls of the store or waits, so the budget applies to each call
	bound   bool          // permitted to callers that are bound to a user, because the method checks which runs they reach
}

// rights has every operation. Methods of the service check further rules: submitters cancel their own
// runs only, authors do not publish their own drafts, and a signal needs the role for its content.
var rights = func() map[Operation]right {
	const (
		viewer, submitter, approver = access.Viewer, access.Submitter, access.Approver
		author, operator, admin     = access.Author, access.Operator, access.Admin
	)
	change := func(roles ...access.Role) right { return right{roles: roles, changes: true, noted: true} }
	read := func(roles ...access.Role) right { return right{roles: roles} }
	shared := func(what string) right { return right{roles: []access.Role{viewer}, shared: what} }
	lasting := func(r right) right {
		r.lasts = true
		return r
	}
	// Callers that are bound to a user may do only what follows load, Select or bindRun.
	bound := func(r right) right {
		r.bound = true
		return r
	}
	return map[Operation]right{
		Submit:         bound(change(submitter)),
		SubmitBatch:    lasting(change(submitter)),
		SubmitDraft:    change(author), // the caller must also be a submitter
		Fork:           bound(change(submitter)),
		Send:           bound(change(submitter, approver)),
		Cancel:         bound(right{roles: []access.Role{submitter, operator}, noted: true}),
		CancelMany:     lasting(read(operator)), // writes its audit entry itself, before its effects
		DeleteRun:      lasting(change(operator)),
		PutAgent:       change(author),
		DeleteAgent:    change(author),
		PublishDraft:   change(author, admin),
		DiscardDraft:   change(author),
		Replay:         change(operator),
		TestWebhook:    change(submitter, author, admin), // the roles that may set a webhook
		Accept:         lasting(change(operator, admin)),
		Abandon:        lasting(change(operator, admin)),
		CreateKey:      change(admin),
		RevokeKey:      change(admin),
		PutHook:        change(author),
		DeleteHook:     change(author),
		DeliverHook:    change(submitter),
		PutTrigger:     change(author),
		DeleteTrigger:  change(author),
		DeliverTrigger: change(submitter),
		PutSchedule:    change(author),
		DeleteSchedule: change(author),
		PauseSchedule:  change(author, operator),
		ResumeSchedule: change(author, operator),
		RunSchedule:    change(submitter),
		FireSchedule:   change(submitter),
		PutMemory:      change(author, operator),
		DeleteMemory:   change(author, operator),
		PutFile:        lasting(change(submitter, author)),
		DeleteFile:     change(submitter, author, operator),
		CreateToken:    change(access.Issuer),
		RotateTokens:   change(admin),
		PutTenant:      change(admin),
		DeleteTenant:   change(admin),

		PutEvaluation:    change(author),
		DeleteEvaluation: change(author),

		Read:        read(viewer),
		ReadRuns:    bound(read(viewer)),
		ReadLong:    bound(lasting(read(viewer))),
		ReadWorkers: shared("workers"),
		ReadQueues:  shared("queues"),
		ReadMetrics: shared("metrics"),
		ReadRestore: lasting(shared("the restore status")),
		ReadKeys:    read(admin),
		ReadTenants: read(admin),
		ReadAudit:   read(admin),
	}
}()

// Roles returns the names of the roles that permit the operation; one of them is enough.
func (o Operation) Roles() []string {
	return names(rights[o].roles)
}

func names(roles []access.Role) []string {
	list := make([]string, len(roles))
	for i, r := range roles {
		list[i] = string(r)
	}
	return list
}

// OfDeployment reports whether only roles of the deployment, tenant *, permit the operation.
func (o Operation) OfDeployment() bool { return rights[o].shared != "" }

// Lasts reports whether the operation makes many calls of the store or waits, so that its budget applies to each call.
func (o Operation) Lasts() bool { return rights[o].lasts }

// Permit returns nil if the caller may perform an operation in its tenant. Otherwise it returns a problem, for example
// because the roles or the token of the caller do not permit the operation or the tenant is suspended, or the error of
// the store if the settings of the tenant cannot be read. The methods of a service for these operations make the same
// check, and some make further ones. A server may also call Permit before it reads the body of a request.
func (s *Service) Permit(ctx context.Context, c access.Caller, o Operation) error {
	return s.core.permit(ctx, c, o)
}

func (k *core) permit(ctx context.Context, c access.Caller, o Operation) error {
	r := rights[o]
	if c.Principal.Bound != nil && !r.bound {
		return problem(denied, api.CodeForbidden, "%s has a token for its own runs only, which does not permit this request: use an API key", c.Principal.Name)
	}
	if !c.May(r.roles...) {
		return forbidden(c, r.roles...)
	}
	if r.shared != "" && !c.OfDeployment(access.Viewer) {
		return problem(denied, api.CodeForbidden, "%s may not read %s of the deployment: use a key of tenant * with the role viewer", c.Principal.Name, r.shared)
	}
	// An admin of the deployment may act for a suspended tenant.
	if !r.changes || c.OfDeployment(access.Admin) {
		return nil
	}
	settings, err := k.tenants.Settings(ctx, c.Tenant)
	if err == nil && settings.Suspended {
		return problem(denied, api.CodeTenantSuspended, "tenant %s is suspended or deleted, and may only read and cancel: ask an admin of the deployment to enable it, or to create it again", c.Tenant)
	}
	return err
}

func forbidden(c access.Caller, roles ...access.Role) error {
	return problem(denied, api.CodeForbidden, "%s lacks the required role in tenant %s: ask an admin for the role %s", c.Principal.Name, c.Tenant, strings.Join(names(roles), " or "))
}
