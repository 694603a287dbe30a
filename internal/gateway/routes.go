package gateway

import (
	_ "embed"
	"net/http"

	"github.com/turnpike-dev/turnpike/internal/gateway/exchange"
	"github.com/turnpike-dev/turnpike/internal/gateway/limit"
	"github.com/turnpike-dev/turnpike/internal/gateway/login"
	"github.com/turnpike-dev/turnpike/internal/gateway/resource"
	"github.com/turnpike-dev/turnpike/internal/gateway/server"
	"github.com/turnpike-dev/turnpike/internal/gateway/stream"
	"github.com/turnpike-dev/turnpike/internal/service"
)

// handlers has the handlers that need more than one part of the service.
type handlers struct {
	service     *service.Service
	sessions    *login.Sessions
	submissions *resource.Submissions
	events      *stream.RunHandler
	changes     *stream.TenantHandler
	health      *resource.Health
	maxBody     int64
	maxFile     int64
}

// routes returns the routes of the API by pattern, which is one of http.ServeMux.
func (h handlers) routes() map[string]server.Route {
	s := h.service
	runs, batches := resource.NewRuns(s.Runs, s.Signals), resource.NewBatches(s.Batches)
	agents, drafts := resource.NewAgents(s.Agents, s.Drafts), resource.NewDrafts(s.Drafts)
	letters, fleet, restores := resource.NewLetters(s.Letters), resource.NewFleet(s.Fleet), resource.NewRestores(s.Restores)
	keys, tenants, audit := resource.NewKeys(s.Keys), resource.NewTenants(s.Tenants), resource.NewAudit(s.Audit)
	tokens, hooks := resource.NewTokens(s.Tokens), resource.NewHooks(s.Hooks, h.maxBody)
	memory, triggers := resource.NewMemory(s.Memory), resource.NewTriggers(s.Triggers)
	files, webhooks := resource.NewFiles(s.Files), resource.NewWebhooks(s.Webhooks)
	evaluations := resource.NewEvaluations(s.Evaluations)
	schedules := resource.NewSchedules(s.Schedules)
	listed := limit.Lists()
	list := func(h exchange.Handler) server.Route { return server.For(service.Read, listed(h)) }
	listRuns := func(h exchange.Handler) server.Route { return server.For(service.ReadRuns, listed(h)) }
	return map[string]server.Route{
		"POST /v1/runs":                    server.For(service.Submit, h.submissions.Post),
		"GET /v1/runs":                     listRuns(runs.List).Repeats("status"),
		"GET /v1/runs/{id}":                server.For(service.ReadRuns, runs.Get),
		"GET /v1/runs/{id}/messages":       listRuns(runs.Messages),
		"GET /v1/runs/{id}/turns":          listRuns(runs.Turns),
		"GET /v1/runs/{id}/events":         server.For(service.ReadLong, h.events.Get),
		"GET /v1/events":                   server.For(service.ReadLong, h.changes.Get),
		"DELETE /v1/runs/{id}":             server.For(service.DeleteRun, runs.Delete),
		"POST /v1/runs/{id}/cancel":        server.For(service.Cancel, runs.Cancel),
		"POST /v1/runs/{id}/signals":       server.For(service.Send, runs.Signal),
		"POST /v1/runs/{id}/fork":          server.For(service.Fork, h.submissions.Fork),
		"POST /v1/runs:cancel":             server.For(service.CancelMany, runs.CancelMany),
		"POST /v1/drafts":                  server.For(service.SubmitDraft, h.submissions.Draft),
		"POST /v1/runs:batch":              server.For(service.SubmitBatch, h.submissions.Batch).UpTo(service.BatchBodies),
		"GET /v1/batches":                  list(batches.List),
		"GET /v1/batches/{id}":             list(batches.Get),
		"GET /v1/agents":                   list(agents.List),
		"GET /v1/agents/{name}":            server.For(service.Read, agents.Get),
		"GET /v1/agents/{name}/versions":   list(agents.Versions),
		"GET /v1/agents/{name}/draft":      server.For(service.Read, drafts.Get),
		"DELETE /v1/agents/{name}/draft":   server.For(service.DiscardDraft, drafts.Discard),
		"POST /v1/agents/{name}/publish":   server.For(service.PublishDraft, drafts.Publish),
		"PUT /v1/agents/{name}":            server.For(service.PutAgent, agents.Put),
		"DELETE /v1/agents/{name}":         server.For(service.DeleteAgent, agents.Delete),
		"GET /v1/dead":                     list(letters.List),
		"GET /v1/dead/{seq}":               server.For(service.Read, letters.Get),
		"POST /v1/dead/{seq}/replay":       server.For(service.Replay, letters.Replay),
		"GET /v1/webhooks/pending":         list(webhooks.Pending),
		"POST /v1/webhooks/tests":          server.For(service.TestWebhook, webhooks.Test),
		"GET /v1/webhooks/tests/{id}":      server.For(service.Read, webhooks.GetTest),
		"GET /v1/workers":                  server.For(service.ReadWorkers, fleet.Workers),
		"GET /v1/queues":                   server.For(service.ReadQueues, fleet.Queues),
		"GET /v1/stats":                    list(resource.NewStats(s.Stats).Get),
		"GET /v1/restore":                  server.For(service.ReadRestore, restores.Get),
		"POST /v1/restore:accept":          server.For(service.Accept, restores.Accept),
		"POST /v1/restore:abandon":         server.For(service.Abandon, restores.Abandon),
		"GET /v1/keys":                     server.For(service.ReadKeys, keys.List),
		"POST /v1/keys":                    server.For(service.CreateKey, keys.Create),
		"DELETE /v1/keys/{id}":             server.For(service.RevokeKey, keys.Revoke),
		"POST /v1/tokens":                  server.For(service.CreateToken, tokens.Create),
		"POST /v1/tokens:rotate":           server.For(service.RotateTokens, tokens.Rotate),
		"GET /v1/hooks":                    list(hooks.List),
		"GET /v1/hooks/{name}":             server.For(service.Read, hooks.Get),
		"PUT /v1/hooks/{name}":             server.For(service.PutHook, hooks.Put),
		"DELETE /v1/hooks/{name}":          server.For(service.DeleteHook, hooks.Delete),
		"POST /v1/hooks/{name}":            server.Open(hooks.Deliver).WithQueryOfSender(),
		"POST /v1/hooks/{tenant}/{name}":   server.Open(hooks.Deliver).WithQueryOfSender(),
		"GET /v1/triggers":                 list(triggers.List),
		"GET /v1/triggers/{name}":          server.For(service.Read, triggers.Get),
		"PUT /v1/triggers/{name}":          server.For(service.PutTrigger, triggers.Put),
		"DELETE /v1/triggers/{name}":       server.For(service.DeleteTrigger, triggers.Delete),
		"GET /v1/schedules":                list(schedules.List),
		"GET /v1/schedules/{name}":         server.For(service.Read, schedules.Get),
		"PUT /v1/schedules/{name}":         server.For(service.PutSchedule, schedules.Put),
		"DELETE /v1/schedules/{name}":      server.For(service.DeleteSchedule, schedules.Delete),
		"POST /v1/schedules/{name}/pause":  server.For(service.PauseSchedule, schedules.Pause),
		"POST /v1/schedules/{name}/resume": server.For(service.ResumeSchedule, schedules.Resume),
		"POST /v1/schedules/{name}/run":    server.For(service.RunSchedule, schedules.Run),
		"GET /v1/memory":                   list(memory.List),
		"DELETE /v1/memory":                server.For(service.DeleteMemory, memory.Erase),
		"GET /v1/memory:scopes":            list(memory.Scopes),
		"GET /v1/memory/{path...}":         server.For(service.Read, memory.Get),
		"PUT /v1/memory/{path...}":         server.For(service.PutMemory, memory.Put),
		"DELETE /v1/memory/{path...}":      server.For(service.DeleteMemory, memory.Delete),
		"GET /v1/evaluations":              list(evaluations.List),
		"GET /v1/evaluations/{id}":         server.For(service.Read, evaluations.Get),
		"PUT /v1/evaluations/{id}":         server.For(service.PutEvaluation, evaluations.Put),
		"DELETE /v1/evaluations/{id}":      server.For(service.DeleteEvaluation, evaluations.Delete),
		"GET /v1/files":                    list(files.List),
		"POST /v1/files":                   server.For(service.PutFile, files.Post).Streams(h.maxFile+resource.MultipartExtra, resource.UploadBuffers),
		"GET /v1/files/{id}":               server.For(service.Read, files.Get),
		"GET /v1/files/{id}/content":       server.For(service.Read, files.Content),
		"DELETE /v1/files/{id}":            server.For(service.DeleteFile, files.Delete),
		"GET /v1/tenants":                  server.For(service.ReadTenants, tenants.List),
		"GET /v1/tenants/{name}":           server.For(service.ReadTenants, tenants.Get),
		"PUT /v1/tenants/{name}":           server.For(service.PutTenant, tenants.Put),
		"DELETE /v1/tenants/{name}":        server.For(service.DeleteTenant, tenants.Delete),
		"GET /v1/audit":                    server.For(service.ReadAudit, audit.List),
		"GET /v1/whoami":                   server.For(service.ReadRuns, login.WhoAmI),
		"GET /v1/session":                  server.Open(h.sessions.Get),
		"POST /v1/session":                 server.Open(h.sessions.Post),
		"DELETE /v1/session":               server.Open(h.sessions.Delete),
		"GET /auth/login":                  server.Open(h.sessions.Redirect),
		"GET /auth/callback":               server.Open(h.sessions.Callback),
		"GET /healthz":                     server.Open(h.health.Live),
		"GET /readyz":                      server.Open(h.health.Ready),
		"GET /openapi.json":                server.Open(openAPI),
	}
}

//go:embed openapi.json
var openAPIDocument []byte

func openAPI(w http.ResponseWriter, _ *http.Request) error {
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(openAPIDocument) // the client may have disconnected
	return nil
}
