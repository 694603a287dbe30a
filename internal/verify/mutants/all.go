package main

const (
	turn   = "pkg/worker/turn.go"
	begin  = "pkg/worker/begin.go"
	leases = "pkg/worker/lease.go"
	settle = "pkg/worker/settle.go"
	sweep  = "pkg/worker/sweep.go"
	tools  = "pkg/worker/tools.go"
	rules  = "pkg/state/record/record.go"
	submit = "pkg/gateway/submit.go"
	signal = "pkg/gateway/signals.go"
)

// all are the mistakes.
var all = []mutant{
	// Those that the model of the protocol was held to, before the code was explored.
	{"tools start before the response is written down", turn, []string{
		"		err := t.w.store.Record(ctx, t.lease.Lease, r)\n		if err == nil {\n			t.recorded = t.s.LogLen()\n", "		err := error(nil)\n		if err == nil {\n",
	}, "TestExplore/^tools$"},
	{"nobody notes that a tool was started", tools, []string{"		if !spec.Idempotent {\n", "		if false {\n"}, "TestExplore/^tools$"},
	{"tokens can be foreseen", begin, []string{"Token: w.random.token(),", "Token: fmt.Sprint(msg.Version),", `	"errors"`, "	\"errors\"\n	\"fmt\""}, "TestExplore/^tools$"},
	{"nobody sweeps", sweep, []string{"			w.drive(ctx, due, \"s\")\n", ""}, "TestExplore/^tools"},
	{"the sweeper publishes under the turn's own id", sweep, []string{`fmt.Sprintf("%s:%s%d:%d", turnID(d.Run, d.Version), kind, d.Sweeps, time.Now().UnixNano())`, "turnID(d.Run, d.Version)"}, "TestExplore/^tools"},
	{"a turn that ends does not look for signals that have come", rules, []string{"r.Status != state.Queued && (r.Abort != nil || len(r.Inbox) > 0)", "false"}, "TestExplore/^a_remark$"},
	{"a message is acknowledged before its turn is done", begin, []string{"	claim, err := w.store.Claim(ctx, ask)\n", "	_ = d.Ack()\n	claim, err := w.store.Claim(ctx, ask)\n"}, "TestExplore/^tools"},
	{"the next turn is published before this one is committed", turn, []string{
		"	done, err := t.commit(ctx)\n", "	_ = t.w.bus.PublishTurn(ctx, bus.Turn{Run: t.s.ID, Version: t.claim.Version + 1, Priority: t.s.Priority}, turnID(t.s.ID, t.claim.Version+1))\n	done, err := t.commit(ctx)\n",
	}, "TestExplore/^tools"},
	{"a worker that has lost its lease acknowledges its message", turn, []string{"	default:\n		t.log().Warn().Err(err).Msg(\"turn dropped\")\n", "	default:\n		w.check(d.Ack(), \"ack\")\n"}, "TestExplore/^tools"},

	{"the store does not look at leases", rules, []string{"if r.Status != state.Running || r.Token != l.Token || r.Version != l.Version {", "if r.Version != l.Version {"}, "TestExplore/^tools"},
	{"a lease in force is given to another", rules, []string{"case r.leased(now) && r.Token != q.Token && !r.idle():", "case false:"}, "TestExplore/."},
	{"a commit that is repeated is made again", rules, []string{"if r.CommitID == c.ID && c.ID != \"\" {", "if false {"}, "TestExplore/."},
	{"a commit drops the signals that it has not used", rules, []string{"	r.Inbox = slices.Clone(r.Inbox[gone:])\n", "	r.Inbox = nil\n"}, "TestExplore/^a_remark$"},
	{"the start marks of earlier attempts are not looked at", turn, []string{"		if _, done := t.claim.Journal.Results[id]; !done {\n", "		if false {\n"}, "TestExplore/^tools"},
	{"a release counts the attempt", rules, []string{"	r.Attempts--\n", ""}, "TestExplore/^tools"},
	{"a worker that stops does not release its turns", turn, []string{"		if err := w.store.Release(context.WithoutCancel(ctx), t.lease.Lease); err != nil {", "		if err := error(nil); err != nil {"}, "TestExplore/^tools"},
	{"leases are never renewed", leases, []string{"		for _, l := range leases {\n			asked.Go(func() { w.renew(ctx, l) })\n		}\n", "		_ = leases\n"}, "TestExplore/^tools"},
	{"nobody helps a turn that was committed and not published", turn, []string{"	return w.bus.PublishTurn(ctx, next, turnID(run, c.Version))\n}\n", "	_ = next\n	return nil\n}\n"}, "TestExplore/^nobody_sweeps$"},
	{"a turn does not see that its run was aborted", turn, []string{"Signals: t.claim.Signals, Abort: t.claim.Abort,", "Signals: t.claim.Signals,"}, "TestExplore/cancel"},
	{"an abort does not interrupt a turn", leases, []string{"		l.cancel(&abortError{a.Reason})\n", "		return\n"}, "TestExplore/cancel"},
	{"a turn that ends an aborted run is interrupted by the abort", leases, []string{"if a.Means(l.Version) && !l.ends {", "if a.Means(l.Version) {"}, "TestAbortOfTwoClaims|TestExplore/cancel"},
	{"an abort is not noted in the store", signal, []string{"	wake, err := g.store.Abort(ctx, id, reason, g.cfg.Grace)\n", "	wake, err := state.Wake{}, error(nil)\n"}, "TestExplore/cancel"},
	{"a parent is not told", settle, []string{"		if err := w.tellParent(ctx, s); err != nil {", "		if err := error(nil); err != nil {", "		return w.tellParent(ctx, child)", "		return nil"}, "TestExplore/^two_children$"},
	{"children start before their parent's turn is committed", turn, []string{
		"	done, err := t.commit(ctx)\n", "	if err := t.w.startChildren(ctx, t.s); err != nil {\n		return err\n	}\n	done, err := t.commit(ctx)\n",
	}, "TestExplore/^two_children$"},
	{"an abort is not passed to children", settle, []string{"	return t.w.abortAll(ctx, t.claim.Open)\n", "	return nil\n"}, "TestExplore/children_and|TestExplore/child"},
	{"a child does not ask whether its parent has ended", settle, []string{"	case parent.Status.Terminal():\n", "	case false:\n"}, "TestOrphan"},
	{"a submission's key is dropped", submit, []string{"Key: sub.key, Fingerprint", "Fingerprint"}, "TestExplore/^one_turn$"},
	{"the gateway does not publish the turn of a submission", submit, []string{"if st.Status == state.Queued && (!existing || st.Version == run.Version) {", "if false {"}, "TestExplore/^one_turn$"},
	{"the gateway does not publish the turn of a signal", signal, []string{"	if wake.Publish {\n		g.publish(r.Context(), bus.Turn{Run: id, Version: wake.Version, Priority: wake.Priority", "	if false {\n		g.publish(r.Context(), bus.Turn{Run: id, Version: wake.Version, Priority: wake.Priority"}, "TestExplore/^an_answer$"},
}
