package main

const (
	turn      = "internal/engine/turn/turn.go"
	claim     = "internal/engine/turn/claim.go"
	act       = "internal/engine/turn/act.go"
	journal   = "internal/engine/turn/journal.go"
	reject    = "internal/engine/turn/reject.go"
	commit    = "internal/engine/turn/commit.go"
	eager     = "internal/engine/upkeep/eager.go"
	leases    = "internal/engine/upkeep/leases.go"
	finalize  = "internal/engine/upkeep/finalizer.go"
	rest      = "internal/engine/turn/rest.go"
	sweep     = "internal/engine/upkeep/sweeper.go"
	tools     = "internal/engine/effect/tools.go"
	hooks     = "internal/engine/effect/hooks.go"
	probe     = "internal/engine/effect/probes.go"
	spent     = "internal/engine/turn/spent.go"
	members   = "internal/engine/upkeep/members.go"
	performer = "internal/engine/effect/performer.go"
	messages  = "internal/dispatch/dispatch.go"
	rules     = "internal/state/record/record.go"
	inbox     = "internal/state/record/inbox.go"
	memory    = "pkg/state/memstore/memstore.go"
	submit    = "internal/service/submit.go"
	intake    = "internal/gateway/intake/intake.go"
	signal    = "internal/service/signals.go"
	runs      = "internal/service/runs.go"
	history   = "internal/service/history.go"
	views     = "pkg/state/checkpoint.go"
)

// all are the mistakes.
var all = []mutant{
	// Those that a model of the protocol was held to, before the code itself was explored.
	{"tools start before the response is written down", journal, []string{
		"		abort, err := j.store.Record(within, j.lease.Lease, r)\n		if err == nil {\n			j.lease.Wrote()\n			j.lease.Interrupt(abort)\n			j.grown(ctx, state.LogLen(log))\n", "		abort, err := (*state.Abort)(nil), error(nil)\n		if err == nil {\n			j.lease.Wrote()\n			j.lease.Interrupt(abort)\n",
	}, "TestExplore/^tools$"},
	{"nobody notes that a tool was started", tools, []string{"		if !spec.Idempotent && spec.By != tool.ByHistory {\n", "		if false {\n"}, "TestExplore/^tools$"},
	{"tokens can be foreseen", claim, []string{"q.Token = k.cfg.Random.Token()", "q.Token = strconv.FormatInt(msg.Version, 10)", "\t\"time\"\n", "\t\"strconv\"\n\t\"time\"\n"}, "TestExplore/^tools$"},
	{"nobody sweeps", sweep, []string{"refused := s.Republish(ctx, due, dispatch.Swept())", "refused := 0"}, "TestExplore/^tools$"},
	{"the sweeper publishes under the turn's own id", messages, []string{
		`fmt.Sprintf("%s:%s%d:%d", id(due.Run, due.Version), cause.letter, due.Sweeps, time.Now().UnixNano())`, `id(due.Run, due.Version)+fmt.Sprintf("%.0s", time.Now())`,
	}, "TestExplore/^tools$"},
	{"a turn that ends does not look for signals that have come", rules, []string{"r.Status != state.Queued && (r.Abort != nil || len(r.Inbox) > 0)", "false"}, "TestExplore/^an_answer_and_a_cancellation$"},
	{"a message is acknowledged before its turn is done", claim, []string{"	c, err := k.ask(ctx, msg, token)\n", "	_ = d.Ack()\n	c, err := k.ask(ctx, msg, token)\n"}, "TestExplore/^tools$"},
	{"the next turn is published before this one is committed", turn, []string{
		"	done, err := t.commit(ctx)\n", "	_ = k.cfg.Dispatch.Publish(ctx, dispatch.Turn{Run: t.s.ID, Version: t.claim.Version + 1, Priority: t.s.Priority})\n	done, err := t.commit(ctx)\n",
	}, "TestExplore/^tools$"},
	{"a worker that has lost its lease acknowledges its message", commit, []string{"the store may be unreachable or refuse the operation\")\n		return nil\n	}\n	delay", "the store may be unreachable or refuse the operation\")\n		return t.delivery.Ack()\n	}\n	delay"}, "TestExplore/^tools"},

	// The turn.
	{"the start marks of earlier attempts are not looked at", claim, []string{"		if _, done := c.Journal.Results[id]; !done {\n", "		if false {\n"}, "TestExplore/^tools$"},
	{"the results of earlier attempts are not looked at", claim, []string{"range slices.Sorted(maps.Keys(c.Journal.Results)) {", "range []string{} {"}, "TestExplore/^tools$"},
	{"a worker that stops does not release its turns", commit, []string{"	if err := t.taker.store.Release(ctx, t.lease.Lease, delay); err != nil {", "	if err := error(nil); err != nil {"}, "TestExplore/^tools"},
	{"leases are never renewed", leases, []string{"			asked.Go(func() { h.renew(ctx, l) })\n", "			_ = l\n"}, "TestExplore/^tools"},
	{"nobody helps a turn that was committed and not published", reject, []string{"		return k.cfg.Dispatch.Follow(ctx, msg, c.Version, c.Priority)\n", "		return nil\n"}, "TestExplore/^nobody_sweeps,_no_optimisations$"},
	{"the next turn is not published", turn, []string{"		err = t.publishNext(ctx, done)\n", "		err = nil\n"}, "TestExplore/^one_turn$|TestExplore/^tools$"},
	{"a run that comes to rest is not finalized", turn, []string{"		err = t.finalize(ctx)\n", "		err = nil\n"}, "TestExplore/^two_children$"},

	// The rules that the stores hold.
	{"the store looks neither at leases nor at what was written meanwhile", rules, []string{
		"if r.Status != state.Running || r.Token != l.Token || r.Version != l.Version {", "if r.Version != l.Version {", "	} else if r.LogLen != j.From {\n", "	} else if false {\n",
	}, "TestExplore/^tools$"},
	{"a lease in force is given to another", rules, []string{"case r.leased(now) && r.Token != q.Token && !r.idle():", "case false:"}, "TestExplore/^a_cancellation$"},
	{"a commit that is repeated is made again", rules, []string{"if r.CommitID == c.ID && c.ID != \"\" {", "if false {"}, "TestExplore/^tools$"},
	{"a run ends although something has come in during its last turn", commit, []string{"RequireInboxConsumed: true, ", ""}, "TestExplore/^a_remark$"},
	{"the store ends a run although something has come in", rules, []string{"	return reach > c.Consumed\n", "	return reach < 0\n"}, "TestExplore/^a_remark$"},
	{"what has come in during the last turn is dropped", commit, []string{"	next := loop.ApplyLateSignals(*t.s, t.taker.cfg.Clock.Now(), late, c.Abort != nil)\n", "	_ = loop.ApplyLateSignals\n	next := *t.s\n"}, "TestExplore/^a_remark$"},
	{"model calls of workers that died are not counted", act, []string{"	if began.Attempt > 1 {\n", "	if false {\n"}, "TestExplore/^tools,_no_optimisations$"},
	{"a model call is not counted where an attempt has journaled nothing", spent, []string{"	if attempts <= known {\n", "	if attempts <= known+1 {\n"}, "TestExplore/^tools,_no_optimisations$"},
	{"a sealed run takes messages", inbox, []string{"	if r.Sealed != \"\" {\n		return state.Wake{}, state.ErrDeleting", "	if false {\n		return state.Wake{}, state.ErrDeleting"}, "TestExplore/^a_deletion_of_a_tree"},
	{"a commit drops the signals that it has not used", rules, []string{"	r.Inbox = slices.Clone(r.Inbox[gone:])\n", "	r.Inbox = nil\n"}, "TestExplore/^a_remark$"},
	{"a signal that is repeated is taken twice", inbox, []string{"	if slices.Contains(r.Seen, key) {\n", "	if false {\n"}, "TestExplore/^a_remark$"},
	{"a release counts the attempt", rules, []string{"	r.Attempts--\n", ""}, "TestExplore/^tools"},

	{"a deleted run holds up its batch", "internal/engine/upkeep/batch.go", []string{"		case errors.Is(err, state.ErrNotFound):\n			gone", "		case errors.Is(err, state.ErrNotFound) && id == \"\":\n			gone"}, "TestExplore/^a_deletion_in_a_batch$"},
	{"a run that another deletion deleted counts as one that is about to be created", deletion, []string{"		case errors.Is(err, state.ErrDeleted):\n			if err := c.purgeDeleted", "		case err == nil:\n			if err := c.purgeDeleted"}, "TestExplore/^two_deletions_of_a_tree_and_a_remark$"},

	// Probes.
	{"it is believed of a call that it was not done while it still can be", probe, []string{"f.counts = f.Refused ||", "f.counts = true ||"}, "TestExplore/^a_probe_that_promises_nothing$"},
	{"a call is started again as often as its probe says that it was not done", probe, []string{
		"case f.Outcome == tool.NotDone && f.counts && !l.start.Again:", "case f.Outcome == tool.NotDone && f.counts:",
	}, "TestExplore/^a_probe"},
	{"a call whose key is refused is started again with that key", tools, []string{"		id += \" again\"\n", "		_ = id\n"}, "TestExplore/^a_probe_that_refuses$"},
	{"nobody asks the probe", probe, []string{"if len(t.Starts) == 0 || began.Abort != nil || began.Poisoned {", "if true {"}, "TestExplore/^a_probe_that_refuses$"},

	// Workers that were only paused, or unreachable.
	{"whoever takes a turn up does not wait for what its worker hands in", claim, []string{"	if c.Attempt != 2 || c.Abort != nil || k.cfg.Periods.LateResults < 0 {\n", "	if true {\n"}, "TestExplore/^a_worker_that_sleeps$"},
	{"a worker that was only paused says nothing", commit, []string{"		t.handIn(ctx, fenced)\n", "		_ = fenced\n"}, "TestExplore/^a_worker_that_sleeps$"},
	{"the store keeps nothing of a worker that was evicted", rules, []string{
		"			r.keepResults(slices.DeleteFunc(slices.Clone(j.Results), func(e state.Entry) bool { return !r.startedBy(e.CallID, l.Token) }))\n", "",
	}, "TestExplore/^a_worker_that_sleeps$"},
	{"a worker is evicted that only the store hears", members, []string{"return err == nil && !alive && m.unheard(id), err", "return err == nil && (alive || m.unheard(id)), err"}, "TestExplore/^a_worker_that_is_not_heard$"},

	// Hooks.
	{"a hook is not asked before a tool", hooks, []string{"		if r.Call != nil && !d.Covers(r.Call.Tool) {\n", "		if r.Call != nil {\n"}, "TestExplore/^hooks$"},
	{"a hook hears of a response before it is written down", hooks, []string{
		"		if err := t.Journal.Response(ctx, t.Run.Log); err != nil {\n			return nil, err\n		}\n		if ctx.Err() != nil {\n", "		if ctx.Err() != nil {\n",
	}, "TestExplore/^hooks$"},
	{"a hook that only watches sees a response before it is written down", performer, []string{"		err = p.hooks.observe(ctx, t, ev)\n", "		err = p.hooks.observe(ctx, t, ev)\n		p.Recorded(ctx, t, t.Run.Log)\n"}, "TestExplore/^hooks$"},
	{"a result stays in memory while a turn waits for hooks", act, []string{" && !t.effects.AwaitsNotes()", ""}, "TestExplore/^hooks$"},

	// Submissions and aborts over the bus.
	{"a submission over the bus is acknowledged before it is stored", intake, []string{"			i.answer(ctx, m, kind, service.Guarded(i.log, func() error { return take(ctx, m) })())\n", "			_ = m.Ack()\n			i.answer(ctx, m, kind, service.Guarded(i.log, func() error { return take(ctx, m) })())\n"}, "TestExplore/^a_service,_over_the_bus$"},
	{"a submission over the bus loses its key", intake, []string{"Key: m.Header(headerMsgID), Message: m.ID(), ", ""}, "TestExplore/^a_service,_over_the_bus$"},
	{"an abort over the bus is not noted in the store", runs, []string{"	wake, err := s.store.Abort(ctx, st.ID, abort, s.cfg.RedeliveryDelay)\n", "	wake, err := state.Wake{}, error(nil)\n	_ = abort\n"}, "TestExplore/^a_service,_over_the_bus$"},
	{"a service is not told of the end", finalize, []string{"		if err := f.reply(ctx, s); err != nil {\n", "		if err := error(nil); err != nil {\n"}, "TestExplore/^a_service,_over_the_bus$"},

	// Aborts.
	{"a turn does not see that its run was aborted", claim, []string{"Signals: c.Signals, Abort: c.Abort,\n		Poisoned", "Signals: c.Signals,\n		Poisoned"}, "TestExplore/^a_cancellation$"},
	{"an abort does not interrupt a turn", leases, []string{"		l.cancel(&AbortError{state.Abort{Reason: a.Reason, By: state.OnBus(a.Tenant)}})\n", ""}, "TestExplore/^a_cancellation$"},
	{"an abort between a claim and the note of it is missed", leases, []string{"		for _, a := range c.aborts {\n			h.apply(a, l)\n", "		for range c.aborts {\n"}, "TestExplore/^a_cancellation$"},
	{"a turn that ends an aborted run is interrupted by the abort", leases, []string{"	case !a.AppliesTo(l.Version) || a.Tenant != l.tenant || l.ending:", "	case !a.AppliesTo(l.Version):"}, "TestAbortOfTwoClaims|TestExplore/^a_cancellation$"},
	{"an eager claim outlives an abort", leases, []string{"	h.eager.forget(a.Run) // the worker asks the store, which reports the abort\n", ""}, "TestExplore/^a_cancellation$"},
	{"an abort is not noted in the store", runs, []string{"	wake, err := s.store.Abort(ctx, st.ID, abort, s.cfg.RedeliveryDelay)\n", "	wake, err := state.Wake{}, error(nil)\n	_ = abort\n"}, "TestExplore/^a_cancellation$"},

	{"a worker does not heed the abort that its write to the journal reports", journal, []string{"			j.lease.Interrupt(abort)\n", "			_ = abort\n"}, "TestExplore/^a_cancellation$"},
	{"the store does not report an abort to a write to the journal", memory, []string{"			abort = rec.Pending()\n", ""}, "TestExplore/^a_cancellation$"},

	// Children.
	{"a parent is not told", finalize, []string{"	if s.Parent == nil {\n		return nil\n	}\n	result :=", "	if s.ID != \"\" {\n		return nil\n	}\n	result :="}, "TestExplore/^two_children$"},
	{"children start before their parent's turn is committed", turn, []string{
		"	done, err := t.commit(ctx)\n", "	_ = k.cfg.Upkeep.Finalizer.Finalize(ctx, t.s, t.s.LogLen(), nil)\n	done, err := t.commit(ctx)\n",
	}, "TestExplore/^two_children$"},
	{"an abort is not passed to children", rest, []string{"	c.missing, err = t.taker.cfg.Upkeep.Finalizer.AbortChildren(ctx, t.s.Tenant, calls)\n", "	_ = calls\n"}, "TestExplore/^a_child_and_a_cancellation$"},
	{"a child does not ask whether its parent has ended", rest, []string{"	case parent.Status.Terminal() || ", "	case parent.Status == \"\" || "}, "TestOrphan"},

	// The gateway.
	{"a submission's key is dropped", submit, []string{"Key: sub.storeKey(), Fingerprint", "Fingerprint"}, "TestExplore/^one_turn$"},
	{"the gateway does not publish the turn of a submission", submit, []string{"if st.Status == state.Queued && (!existing || st.Version == run.Version) {", "if false {"}, "TestExplore/^one_turn$"},
	{"the gateway does not publish the turn of a signal", signal, []string{
		"	s.publish(ctx, func(ctx context.Context) error { return send(ctx, id, wake, trace) })\n", "	_, _, _ = send, wake, trace\n",
	}, "TestExplore/^an_answer$"},

	// Checkpoints of the history.
	{"a fork reads from the last checkpoint", history, []string{"from, err := k.checkpointBefore(ctx, st, turn)", "from, err := st.Checkpoint, error(nil)"}, "TestExplore/^checkpoints_and_forks$"},
	{"a checkpoint has what a rollback has withdrawn", views, []string{"Messages: View(s.Log), Previous", "Messages: FullView(s.Log), Previous"}, "TestExplore/^checkpoints_and_a_withdrawal$"},
	{"a checkpoint does not name the one before", views, []string{"Previous: s.Checkpoint, ", ""}, "TestExplore/^checkpoints$"},
}
