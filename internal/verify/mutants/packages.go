package main

const (
	lua       = "pkg/state/redisstore/scripts/"
	redis     = "pkg/state/redisstore"
	cleaner   = "pkg/retention/cleaner.go"
	pass      = "pkg/retention/pass.go"
	deletion  = "pkg/retention/deletion.go"
	retention = "pkg/retention"
	gateway   = "pkg/gateway"
	worker    = "pkg/worker"
	natsbus   = "pkg/bus/natsbus"
)

// packages are mistakes that the tests of a package must find, in their short form.
var packages = []group{
	{redis, []mutant{
		{"a turn whose tool is at work under an eager claim is taken", lua + "claim.lua", []string{" and redis.call('EXISTS', J) == 0", ""}, "TestStore/EagerTaken$"},
		{"a turn that wrote entries under an eager claim is taken", lua + "claim.lua", []string{" and redis.call('LLEN', L) == tonumber(base)", ""}, "TestStore/EagerTaken$"},
		{"the finalized position goes back", lua + "finalized.lua", []string{"math.max(tonumber(finalized), math.min(tonumber(ARGV[2]), len))", "math.min(tonumber(ARGV[2]), len)"}, "TestStore/SweepFinalize$"},
		{"a deletion leaves the ids of signals", lua + "delete.lua", []string{"redis.call('DEL', R, L, J, I, X, G)", "redis.call('DEL', R, L, J, I, G)"}, "TestDeletionLeavesNothing$"},
	}},
	{retention, []mutant{
		{"the period of a run counts from its creation", pass, []string{"		if s.FinishedAt.After(until) {", "		if s.CreatedAt.After(until) {"}, "TestPeriodCountsFromTheEnd$"},
		{"a run below another is deleted on its own", deletion, []string{"	if s.Parent == nil {\n", "	if true {\n"}, "TestDeleteTree$"},
		{"the runs above are deleted first", deletion, []string{"cmp.Compare(b.depth, a.depth)", "cmp.Compare(a.depth, b.depth)"}, "TestInterruptedDelete$"},
		{"failed runs are kept as long as completed ones", cleaner, []string{"rules = append(rules, rule{f, time.Duration(keep.Failed)})", "rules = append(rules, rule{f, time.Duration(keep.Completed)})"}, "TestKeep$|TestPeriodCountsFromTheEnd$"},
		{"an agent cannot keep its runs for less", cleaner, []string{"		keep := own.Tighter(c.cfg.Keep)\n", "		keep := own.Tighter(c.cfg.Keep)\n		keep = c.cfg.Keep\n"}, "TestKeep$"},
	}},
	{gateway, []mutant{
		{"a repeated submission does not publish what the first could not", submit, []string{"(!existing || st.Version == run.Version)", "!existing"}, "TestRepeatedSubmissionIsPublished$"},
	}},
	{worker, []mutant{
		{"a redacted part keeps its sealed content", "pkg/worker/redact.go", []string{"rest[i].Text, rest[i].Opaque, rest[i].OpaqueBy, redacted = redacted, nil, \"\", \"\"", "rest[i].Text, redacted = redacted, \"\""}, "TestSpreadSecret$"},
		{"an eager claim never ages", eager, []string{"	return c, time.Since(c.since) < eagerFor\n", "	return c, true\n"}, "TestEagerClaimAges$"},
		{"an eager claim is used twice", eager, []string{"	delete(e.runs, msg.Run)\n	return c, time", "	return c, time"}, "TestEagerClaimIsUsedOnce$"},
		{"a worker that stops keeps its eager claims", eager, []string{"		if c.since.After(since) {\n", "		if false {\n"}, "TestEagerClaimIsReleased$"},
		{"a deaf worker judges others", members, []string{"	if m.deaf(m.unreachableAfter() / 2) {\n", "	if false {\n", " || m.deaf(2*every)", ""}, "TestDeafWorkerEvictsNoOther$"},
		{"an eviction that failed is not repeated", members, []string{"if _, heard := m.seen[id]; !heard && !done {", "if false {", "			if done && m.unheard(id) {", "			if m.unheard(id) {"}, "TestEvictionIsTriedAgain$"},
		{"a worker that restarts leaves its turns to their leases", members, []string{"due, err := w.store.Evict(ctx, w.cfg.ID, evictPart, w.cfg.RedeliveryDelay)", "var due []state.Due; var err error"}, "TestRestartUnderTheSameID$"},
		{"a worker claims eagerly beside one that takes nothing over", members, []string{"	if !other.takesOver {\n		m.w.eager.allow(false)\n	}\n", "", "		known = known && other.takesOver\n", "		_ = other\n"}, "TestNoEagerClaim"},
	}},
	{natsbus, []mutant{
		{"a watch never expires", "pkg/bus/natsbus/events.go", []string{"return ok && time.Now().Before(until)", "_ = until\n	return ok"}, "TestWatchesExpire$"},
	}},
}
