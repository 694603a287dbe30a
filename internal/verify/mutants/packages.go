package main

const (
	lua       = "pkg/state/redisstore/scripts/"
	redis     = "pkg/state/redisstore"
	cleaner   = "internal/retention/cleaner.go"
	pass      = "internal/retention/pass.go"
	deletion  = "internal/retention/deletion.go"
	retention = "internal/retention"
	gateway   = "internal/gateway"
	service   = "internal/service"
	loops     = "pkg/loop"
	a2a       = "internal/tool/a2atool"
	mcp       = "internal/tool/mcptool"
	openai    = "pkg/model/openai"
	worker    = "internal/worker"
	effects   = "internal/engine/effect"
	turns     = "internal/engine/turn"
	webhooks  = "internal/engine/webhook"
	agents    = "pkg/agent"
	natsbus   = "pkg/bus/natsbus"
	approvals = "pkg/state/approval.go"
	problems  = "internal/service/problem.go"
	batch     = "internal/service/batch.go"
	batches   = "internal/service/batches.go"
	cancels   = "internal/service/cancelruns.go"
	natsstore = "pkg/state/natsstore"
	files     = "internal/file"
	streams   = "internal/gateway/stream"
)

// packages are mistakes that the tests of a package must find, in their short form.
var packages = []group{
	{redis, []mutant{
		{"a turn whose tool is at work under an eager claim is taken", lua + "claim.lua", []string{" and redis.call('EXISTS', J) == 0", ""}, "TestStore/EagerTaken$"},
		{"a turn that wrote entries under an eager claim is taken", lua + "claim.lua", []string{" and redis.call('LLEN', L) == tonumber(base)", ""}, "TestStore/EagerTaken$"},
		{"the finalized position goes back", lua + "finalized.lua", []string{"math.max(tonumber(finalized), math.min(tonumber(ARGV[2]), len))", "math.min(tonumber(ARGV[2]), len)"}, "TestStore/SweepFinalize$"},
		{"a deletion leaves the ids of signals", lua + "delete.lua", []string{"redis.call('DEL', R, L, J, I, X, G)", "redis.call('DEL', R, L, J, I, G)"}, "TestDeletionLeavesNothing$"},

		{"equal definitions at once are several versions", lua + "agent.lua", []string{"if ARGV[3] == '0' and ", "if false and "}, "^TestStore$/^Agents$"},

		// Deletions.
		{"the store deletes a run in flight", lua + "delete.lua", []string{"if not terminal(status) then return {'live', status} end\n", ""}, "^TestStore$/^Delete$"},
		{"a deleted run is counted", lua + "delete.lua", []string{"redis.call('HINCRBY', C, status, -1)\n", ""}, "^TestStore$/^Delete$"},
		{"a deleted run stays due", lua + "delete.lua", []string{"redis.call('ZREM', D, ARGV[1])\n", ""}, "TestDeletionLeavesNothing$"},
		{"a deletion leaves the names of the run in lists", lua + "delete.lua", []string{"for name in string.gmatch(ARGV[2] .. (indexed or ''), '[^\\n]+') do redis.call('ZREM', N, listing(tenant, name, ARGV[1])) end\n", ""}, "TestDeletionLeavesNothing$"},
		{"a deletion leaves the status of the run in lists", lua + "delete.lua", []string{"for name in string.gmatch(listed, '%S+') do redis.call('ZREM', N, listing(tenant, 'status:' .. name, ARGV[1])) end\n", ""}, "TestDeletionLeavesNothing$"},
		{"a deletion leaves the descendants of the run", lua + "delete.lua", []string{"redis.call('DEL', R, L, J, I, X, G)", "redis.call('DEL', R, L, J, I, X)"}, "TestDeletionLeavesAMarkerOnly$"},
		{"a deletion leaves no marker", lua + "delete.lua", []string{"mark(R, tenant, ARGV[3])\n", ""}, "^TestStore$/^DeleteMarker"},
		{"a marker never expires", lua + "lib.lua", []string{"  redis.call('PEXPIRE', R, lifetime)\n", ""}, "TestDeletionLeavesAMarkerOnly$"},
		{"a late claimer acknowledges a timer", lua + "timer.lua", []string{"or string.match(entry, '^%d+') ~= ARGV[3]", ""}, "^TestStore$/^TimerFenced$"},
		{"a claimed timer is due at once", lua + "timers.lua", []string{"redis.call('ZADD', W, clock + tonumber(ARGV[2]), timer)", "redis.call('ZADD', W, clock, timer)"}, "^TestStore$/^TimerRace$"},
		{"a removed timer keeps its entry", lua + "timer.lua", []string{"  redis.call('HDEL', E, timer)\n", ""}, "^TestStore$/^TimerRemove$"},
		{"a removed timer stays in the list of names", lua + "timer.lua", []string{"  redis.call('ZREM', M, timer)\n", ""}, "TestTimerLeavesNothing$"},
		{"a claim loses the note of its timer", lua + "timers.lua", []string{"due .. ' ' .. note)", "due .. ' ')"}, "^TestStore$/^TimerNote$"},
		{"a run is not indexed by its metadata", lua + "create.lua", []string{"if indexed then redis.call('HSET', R, 'ix', indexed) end\n", ""}, "TestDeletionLeavesNothing$"},
		{"a guard of an older version passes", lua + "create.lua", []string{" or redis.call('HGET', A, 'k' .. latest) ~= ARGV[18]", ""}, "^TestStore$/^Guard$"},
		{"a guard of a deleted agent passes", lua + "create.lua", []string{" or deleted == '1'", ""}, "^TestStore$/^Guard$"},
		{"a refused run takes its key", lua + "create.lua", []string{"local owner = K and redis.call('GET', K)\n", "local owner = K and not redis.call('SET', K, ARGV[15], 'NX') and redis.call('GET', K)\n"}, "^TestStore$/^Guard$"},
		{"a repetition needs the latest version", lua + "create.lua", []string{"if A and redis.call('EXISTS', R) == 0 then", "if A then"}, "^TestStore$/^Guard$"},
		{"a deleted run is created again", lua + "create.lua", []string{"if absent(R) == 'deleted' then return {'deleted'} end\n", ""}, "^TestStore$/^DeleteMarker"},
		{"a run that exists gets a marker", lua + "prevent.lua", []string{"if redis.call('EXISTS', R) == 1 then return {'exists'} end\n", ""}, "TestPreventedRunStays$"},
		{"a deletion frees the key of a newer run", lua + "freekey.lua", []string{"if owner and string.match(owner, '^%S+') == ARGV[1] then", "if owner then"}, "TestDeletionLeavesTheKeyOfANewerRun$"},
		{"the record of a batch expires while a run of it is left", lua + "batch.lua", []string{"redis.call('HLEN', B) > tonumber(ARGV[4])", "redis.call('HLEN', B) >= tonumber(ARGV[4])"}, "TestRecordOfADeletedBatch$"},
		{"the record of a deleted batch never expires", lua + "batch.lua", []string{"if redis.call('HLEN', B) > tonumber(ARGV[4]) then redis.call('PEXPIRE', B, ARGV[5]) end\n", ""}, "TestRecordOfADeletedBatch$"},
		{"the store seals a run in flight", lua + "seal.lua", []string{"if not terminal(status) then return {'live', status} end\n", ""}, "^TestStore$/^Seal$"},
		{"a seal of a newer format is written", lua + "seal.lua", []string{"if newer(format) then return {'newer'} end\n", ""}, "^TestStore$/^NewerFormat"},
		{"a seal names no run that its root admitted", lua + "seal.lua", []string{"redis.call('SMEMBERS', G)", "{}"}, "^TestStore$/^Seal$"},
		{"a seal keeps its first token", lua + "seal.lua", []string{"redis.call('HSET', R, 'sl', ARGV[1])", "redis.call('HSETNX', R, 'sl', ARGV[1])"}, "^TestStore$/^Seal$"},
		{"a deletion takes the seal of another one back", lua + "unseal.lua", []string{"if sealed == ARGV[1] then redis.call('HDEL', R, 'sl') end", "redis.call('HDEL', R, 'sl')"}, "^TestStore$/^Seal$"},
		{"a sealed run takes messages in Redis", lua + "signal.lua", []string{"if (sealed or '') ~= '' then return {'deleting'} end\n", ""}, "^TestStore$/^Seal$"},

		// Signals, aborts and trees.
		{"a key of a signal stands for any body", lua + "signal.lua", []string{"  if told and not redis.call('ZSCORE', X, mark) then return {'conflict'} end\n", ""}, "^TestStore$/^SignalFingerprint"},
		{"a key without a body conflicts with one", lua + "signal.lua", []string{"local told = ARGV[10] ~= '' and redis.call", "local told = redis.call"}, "^TestStore$/^SignalFingerprint"},
		{"a signal is taken for which the run does not wait", lua + "signal.lua", []string{"if not ok then return {'closed', status, name} end\n", ""}, "^TestStore$/^SignalRefused"},
		{"a signal publishes a turn that runs", lua + "signal.lua", []string{"if status ~= 'waiting' and not terminal(status) then return {'ok', 0, version, lane, tenant, 0} end\n", ""}, "^TestStore$/^SignalDuringTurn"},
		{"an inbox takes one signal too many", lua + "signal.lua", []string{"if signals > tonumber(ARGV[8]) or", "if signals > tonumber(ARGV[8]) + 1 or"}, "^TestStore$"},
		{"an inbox that was emptied counts what it held", lua + "signal.lua", []string{"if signals == 0 then inboxBytes = 0 end\n", ""}, "^TestStore$/^InboxLimit"},
		{"a run that continues is listed as ended", lua + "signal.lua", []string{"relist(R, N, ARGV[1], tenant, listed, 'queued')\n", ""}, "TestLists$"},
		{"a later abort replaces the first", lua + "abort.lua", []string{"if abort == '' then redis.call('HSET', R, 'ab', ARGV[2]) end", "redis.call('HSET', R, 'ab', ARGV[2])"}, "^TestStore$/^Abort$"},
		{"an abort takes what came after it", lua + "claim.lua", []string{"  for i = #inbox, tonumber(abortReach or 0) + 1, -1 do inbox[i] = nil end\n", ""}, "^TestStore$/^AbortAndMessages"},
		{"an aborted root admits runs", lua + "admit.lua", []string{"(terminal(status) or abort ~= '')", "terminal(status)"}, "^TestStore$/^Admit"},
		{"a tree has a run more than its limit", lua + "admit.lua", []string{"count >= tonumber(ARGV[1])", "count > tonumber(ARGV[1])"}, "^TestStore$/^Admit"},

		// Workers that were evicted, and the sweeper.
		{"results of a worker that was never evicted are kept", lua + "record.lua", []string{" and wasEvicted(evicted, version, ARGV[1]) then", " then"}, "^TestStore$/^Starts"},
		{"a late result is kept of a call that another attempt started", lua + "record.lua", []string{"if start and (start == '1' or cjson.decode(start).token == ARGV[1]) then", "if start then"}, "^TestStore$/^Starts"},
		{"a late result replaces the known one", lua + "record.lua", []string{"then redis.call('HSETNX', J, 'r:'", "then redis.call('HSET', J, 'r:'"}, "^TestStore$/^Starts"},
		{"a second result replaces the first", lua + "record.lua", []string{"for _ = 1, results do redis.call('HSETNX'", "for _ = 1, results do redis.call('HSET'"}, "^TestStore$/^Record$"},
		{"a journal is written into a gap of the log", lua + "record.lua", []string{"if not repeated and length ~= from then return {'gap', length} end\n", ""}, "^TestStore$/^Record$"},
		{"a wait that was answered is opened again", lua + "record.lua", []string{"for _, name in ipairs(decode(names)) do have[name] = true end", ""}, "^TestStore$/^SignalToOpenedWait"},
		{"an abort is not reported to a write to the journal", lua + "record.lua", []string{"return {'ok', abort}", "return {'ok', ''}"}, "^TestStore$/^EagerAbortOnRecord"},
		{"a paused worker gives its attempt back twice", lua + "release.lua", []string{"    redis.call('HSET', R, 'ev', table.concat(kept, '\\n'))\n", ""}, "^TestStore$/^Paused"},
		{"the sweeper publishes what a backlog explains", lua + "sweep.lua", []string{"return oldest > 0 and at > 0 and at >= oldest", "return false"}, "^TestStore$/^SweepBacklog"},
		{"the sweeper looks at the backlog of another lane", lua + "sweep.lua", []string{"lane == 'low' and ARGV[5] or ARGV[4]", "lane == 'low' and ARGV[4] or ARGV[5]"}, "^TestStore$/^SweepBacklog"},
		{"the sweeper leaves a released run to the backlog", lua + "sweep.lua", []string{"return oldest > 0 and at > 0 and at >= oldest", "return oldest > 0 and at >= oldest or at == 0"}, "^TestStore$/^SweepBacklog"},
		{"the sweeper does not note whose lease it ends", lua + "sweep.lua", []string{"  if status == 'running' then noteEvicted(R, evicted, version, token) end\n", ""}, "^TestStore$/^Paused"},
		{"the sweeper looks no more at a run that waits for another", lua + "sweep.lua", []string{" or dependent(status, awaits) then", " then"}, "^TestStore$/^SweepDependent"},
		{"the sweeper does not wake a run whose time has come", lua + "sweep.lua", []string{"wake > 0 and wake <= n then", "wake > 0 and wake > n then"}, "^TestStore$/^SweepSchedule"},
		{"the sweeper leaves an aborted run in its lane", lua + "sweep.lua", []string{"if abort ~= '' then lane = 'high' end\n", ""}, "^TestStore$/^Abort$"},
		{"an abort reaches what came after it", lua + "commit.lua", []string{"if reach > 0 then redis.call('HSET', R, 'abr', math.max(0, reach - gone)) end\n", ""}, "^TestStore$/^AbortAndMessages"},
		{"the sweeper publishes turns of commits that a backlog explains", lua + "commit.lua", []string{"'qa', status == 'queued' and now() or '0')", "'qa', '0')"}, "^TestStore$/^BacklogCovers"},
		{"a deletion of an agent that is retried finds none", lua + "agentdelete.lua", []string{" and deletedBy ~= ARGV[1] then", " then"}, "TestLostRepliesOfDeletedAgents$"},
		{"the mark of a shard falls", lua + "mark.lua", []string{"if reached < tonumber(to) and not", "if not"}, "TestBehind$"},
	}},
	{retention, []mutant{
		{"the period of a run counts from its creation", pass, []string{"		if s.FinishedAt.After(until) {", "		if s.CreatedAt.After(until) {"}, "TestPeriodCountsFromTheEnd$"},
		{"a run below another is deleted on its own", deletion, []string{"	if s.Parent == nil {\n", "	if true {\n"}, "TestDeleteTree$"},
		{"the runs above are deleted first", deletion, []string{"cmp.Compare(b.depth, a.depth)", "cmp.Compare(a.depth, b.depth)"}, "TestInterruptedDelete$"},
		{"failed runs are kept as long as completed ones", cleaner, []string{"rules = append(rules, rule{f, time.Duration(keep.Failed)})", "rules = append(rules, rule{f, time.Duration(keep.Completed)})"}, "TestKeep$|TestPeriodCountsFromTheEnd$"},
		{"an agent cannot keep its runs for less", cleaner, []string{"		keep := own.Tighter(c.cfg.Keep)\n", "		keep := own.Tighter(c.cfg.Keep)\n		keep = c.cfg.Keep\n"}, "TestKeep$"},
		{"cancelled runs are kept for ever", cleaner, []string{"state.Incomplete, state.Cancelled}", "state.Incomplete}"}, "TestKeep$"},
		{"incomplete runs are kept for ever", cleaner, []string{"state.Completed, state.Incomplete, ", "state.Completed, "}, "TestRulesOfAPass$"},
		{"runs of stored tenants are kept for ever", cleaner, []string{"append(names, slices.Collect(maps.Keys(stored))...)", "append(names, slices.Collect(maps.Keys(stored))[:0]...)"}, "TestFailedDeletionsKeepNoOther$"},
		{"an agent that cannot be read keeps the runs of others", cleaner, []string{"return nil //nolint:nilerr // of a newer build", "return err"}, "TestRulesOfAPass$"},
		{"a pass comes once a minute, however short the periods are", cleaner, []string{"		wait = min(wait, r.keep/10)\n", "		_ = r\n"}, "TestKeep$"},
		{"a deletion seals its root only", deletion, []string{"			_, err := c.store.Seal(ctx, m.id, token)\n			if errors.Is(err, state.ErrNotFound) {\n				return nil", "			err := error(nil)\n			if err != nil {\n				return nil"}, "TestMessageDuringADeletion$"},
		{"a refused deletion leaves its seals", deletion, []string{"	if err == nil || !refused(err) {\n		// After", "	if true {\n		// After"}, "TestMessageDuringADeletion$"},
		{"a deletion that fails takes the seals of another back", deletion, []string{"	if err == nil || !refused(err) {\n		// After", "	if err == nil {\n		// After"}, "TestFailedDeletionLeavesSeals$"},
		{"a deletion leaves runs that no list has", deletion, []string{"			t.add(memberOf(s))\n		case errors.Is", "			_ = s\n		case errors.Is"}, "TestUnlistedRunOfATree$"},
		{"a deletion does not wait for a run that is about to be created", deletion, []string{"now.Sub(root.finished) < creationGrace", "now.Sub(root.finished) < 0"}, "TestAdmittedRunRefusesTheDeletion$"},
		{"a run that was never created refuses the deletion for ever", deletion, []string{" && now.Sub(root.finished) < creationGrace {", " {"}, "TestAdmittedRunRefusesTheDeletion$"},
		{"a run that was not created by the deletion can be later", deletion, []string{"			err = c.preventCreation(ctx, root, id)\n", "			_ = id\n"}, "TestAdmittedRunRefusesTheDeletion$"},
		{"a run that is created while it is prevented stays", deletion, []string{"error(&state.NotEndedError{ID: id, Status: s.Status})", "error(nil)"}, "TestRunThatIsCreatedDuringTheDeletion$"},
		{"a deletion leaves no intent", deletion, []string{"	if err := c.intend(ctx, name, in); err != nil {\n		return nil, err\n	}\n	c.each", "	c.each"}, "TestDeletionIsCompleted$"},
		{"the intent of a deletion stays", deletion, []string{"	return results, c.intend(context.WithoutCancel(ctx), name, in)", "	return results, nil"}, "TestDeletionIsCompleted$"},
		{"the intent of a failed deletion goes", deletion, []string{"			in.Roots = append(in.Roots, r.root)\n", "			_ = r\n"}, "TestDeletionIsCompleted$"},
		{"seals of a gateway that died stay", deletion, []string{"c.deleteRoot(ctx, root, true)", "c.deleteRoot(ctx, root, false)"}, "TestDeletionIsCompleted$"},
		{"another gateway completes a deletion that is in progress", deletion, []string{"		if now.Sub(in.At.Time) < interrupted {\n", "		if now.Sub(in.At.Time) < 0 {\n"}, "TestDeletionInProgressIsLeftAlone$"},
		{"what was published during a deletion stays on the bus", deletion, []string{"		return err\n	}\n	if err := c.bus.PurgeRun(ctx, m.tenant, m.id, m.letters); err != nil {\n		return fmt.Errorf(\"delete events of run %s: %w\", m.id, err)\n	}\n", "		return err\n	}\n"}, "TestDeletionLeavesNothingOnTheBus$"},
		{"a deletion that the bus refuses loses the run", deletion, []string{"error {\n	if err := c.bus.PurgeRun(ctx, m.tenant, m.id, m.letters); err != nil {\n		return fmt.Errorf(\"delete events of run %s: %w\", m.id, err)\n	}\n", "error {\n"}, "TestInterruptedDelete$|TestFailedDeletionsKeepNoOther$"},
		{"a deletion leaves dead letters", deletion, []string{"letters: s.DeadLettered}", "letters: false}"}, "TestDeletionLeavesNothingOnTheBus$"},
		{"a deletion reads one page of the runs below", deletion, []string{"if f.Cursor = children.Next; f.Cursor == \"\" {", "if f.Cursor = \"\"; true {"}, "TestDeleteWideTree$"},
		{"a deletion is not published", deletion, []string{"	c.bus.Deleted(m.tenant, m.id)\n", ""}, "TestDeletionsAreTold$"},
		{"a tree that cannot be deleted yet stays in the backlog", pass, []string{"			found.done(1)\n		}\n		return t.live != nil", "		}\n		return t.live != nil"}, "TestBacklogWithoutLiveTrees$"},
		{"a deletion is noted for the default tenant", "internal/retention/noted.go", []string{"state.DeletionsDocument, tenant, data)", "state.DeletionsDocument, state.DefaultTenant, data)"}, "TestDeletionIsNotedForItsTenant$"},
		{"a deletion is noted before it only", "internal/retention/noted.go", []string{"	return errors.Join(deletes(), c.note(ctx, tenant))\n", "	return errors.Join(deletes(), nil)\n"}, "TestDeletionIsNotedBeforeAndAfter$"},
		{"a deletion is noted after it only", "internal/retention/noted.go", []string{"	if err := c.note(ctx, tenant); err != nil {\n		return err\n	}\n", ""}, "TestDeletionIsNotedBeforeAndAfter$"},
	}},
	{gateway, []mutant{
		{"a repeated submission does not publish what the first could not", submit, []string{"(!existing || st.Version == run.Version)", "!existing"}, "TestRepeatedSubmissionIsPublished$"},
		{"a submission uses an older version", submit, []string{", Guard: sub.guard}", "}"}, "TestAgentChangedElsewhere$"},
		{"an older version refuses a submission", submit, []string{"return state.State{}, state.ErrChanged // the", "return state.State{}, err // the"}, "TestAgentChangedElsewhere$"},
		{"the files of a run are recorded twice", submit, []string{"guarded.guard, sub.id = a.guard, run.ID", "guarded.guard = a.guard"}, "TestAgentChangedElsewhere$"},

		// Decisions.
		{"a decision by id alone counts for a later call of the same id", approvals, []string{"		if !s.decidedBefore(o.ID) {\n", "		if true {\n"}, "TestApprovalOfADecidedID$"},
		{"a decision makes all ids of a run stale", approvals, []string{"e.Type == EntryDecided && e.CallID == call", "e.Type == EntryDecided"}, "TestApprovalOfADecidedID$"},
		{"a decision by id alone is not refused as stale", signal, []string{"	if state.AwaitsUnhashed(refused.Name) {\n", "	if false {\n"}, "TestApprovalOfADecidedID$"},
		{"a stale hash is not refused as stale", signal, []string{"	if state.AwaitsApprovalHash(refused.Name) {\n", "	if false {\n"}, "TestStaleApproval$"},
		{"the hash of a decision is not looked at", "pkg/state/signal.go", []string{"names = append(names, AwaitApprovalHash(a.CallID, a.Hash))", "_ = a"}, "TestStaleApproval$"},
		{"a hash is good for the next turn", approvals, []string{"strconv.Itoa(s.Turn)", "strconv.Itoa(0)"}, "TestStaleApproval$"},
		{"a hash is good for other arguments", approvals, []string{"tool, string(arguments)}", "tool, string(arguments[:0])}"}, "TestDecisionIsOneEvent$"},
		{"a hash is good for another run", approvals, []string{"{s.Tenant, string(s.ID), ", "{s.Tenant, "}, "TestHashOfAnotherRun$"},
		{"an edit of another call is checked by the schema of the one that waits", signal, []string{" || a.Hash != \"\" && !showsCall(st, a) {", " {"}, "TestEditThatTheSchemaRefuses$"},

		{"an end leaves its approvals open", "pkg/loop/turn.go", []string{"	t.undecided(r, e.By)\n", ""}, "TestApprovalOfADecidedID$"},
		{"an event that the lists of its tenant refuse is retried", "internal/engine/webhook/sender.go", []string{"return refused || errors.Is(err, errEnded)", "return refused && errors.Is(err, errEnded)"}, "TestHostsHoldForWebhooks$"},

		{"a submission gets the latest version, not the one that it names", submit, []string{"if !ok || cmp.Or(sub.version, sub.req.AgentVersion) != 0 {", "if !ok {"}, "TestSubmissionOfAVersion$"},

		// Deletions, batches and cancellations.
		{"a run that a deletion seals is refused as if the store were away", problems, []string{"	if errors.Is(err, state.ErrDeleting) {\n", "	if false {\n"}, "TestRefusalsOfDeletions$"},
		{"a tree whose run is about to be created is refused as if the store were away", problems, []string{"errors.AsType[*retention.NotCreatedError](err); ok {", "errors.AsType[*retention.NotCreatedError](err); ok && false {"}, "TestRefusalsOfDeletions$"},
		{"a run below another is refused as if the store were away", problems, []string{"	if errors.Is(err, retention.ErrChild) {\n", "	if false {\n"}, "TestRefusalsOfDeletions$"},
		{"deleted runs of a batch are created again when their markers expire", batch, []string{"			if _, gone := deleted[i]; gone {\n", "			if _, gone := deleted[i]; gone && false {\n"}, "TestBatchAfterTheMarkers$"},
		{"a run of a batch counts twice while it is deleted", batches, []string{"		if !there[index] { // its", "		if true { // its"}, "TestBatchDuringADeletion$"},
		{"a batch is done when its remaining runs have ended", batches, []string{"	b.Done = ended == b.Total\n", "	b.Done = ended >= len(runs)\n"}, "TestBatchWithDeletedRuns$"},
		{"a batch is shown to other tenants", batches, []string{"if origin.Size == 0 || origin.Tenant != c.Tenant {", "if origin.Size == 0 {"}, "TestBatchWithDeletedRuns$"},
		{"a batch without its first run is not found", batches, []string{"	origin := deleted.BatchOrigin\n", "	var origin state.BatchOrigin\n"}, "TestBatchWithDeletedRuns$"},
		{"runs of a batch have the version of its first run", batch, []string{"fmt.Sprintf(\"%s@%d\", req.Agent, req.AgentVersion)", "req.Agent"}, "TestBatchOfVersions$"},
		{"a batch ends with its client", batch, []string{"context.WithTimeout(context.WithoutCancel(ctx), batchTimeout)", "context.WithTimeout(ctx, batchTimeout)"}, "TestBatchOutlivesItsClient$"},
		{"a key of a batch stands for any body", batch, []string{"Key: key, Fingerprint: mark}", "Key: key, Fingerprint: \"\"}"}, "TestBatchIsCompleted$"},
		{"a cancellation of many reaches other tenants", cancels, []string{"	f.Tenant = c.Tenant\n", "	_ = c.Tenant\n"}, "TestCancelRunsOfOneTenant$"},
		{"a dry run cancels", cancels, []string{"	if req.DryRun {\n", "	if false {\n"}, "TestCancelRuns$"},
		{"a run that ended meanwhile fails the cancellation of many", cancels, []string{"_, ended := errors.AsType[*state.TerminalError](err); ended || errors.Is", "errors.Is"}, "TestCancelRunsThatEnd$"},
		{"a run that was deleted meanwhile fails the cancellation of many", cancels, []string{"ended || errors.Is(err, state.ErrNotFound) {", "ended {"}, "TestCancelRunsThatEnd$"},
		{"an abort over the bus of a deleted run is a dead letter", intake, []string{"ended || errors.Is(err, state.ErrDeleted) {", "ended {"}, "TestAbortRequestOfADeletedRun$"},
		{"the dead letter of a submission loses its key", intake, []string{"letter.Agent, letter.Key, letter.Message, letter.ReplyTo = m.Key(), m.Header(headerMsgID), m.ID(), ", "letter.Agent, letter.Message, letter.ReplyTo = m.Key(), m.ID(), "}, "TestReplaySubmissionUnderItsKey$"},
		{"a reader of changes is not told of runs that were not read", streams + "/tenant_handler.go", []string{"lost = page.Next != \"\" || deleted", "lost = deleted"}, "TestChangesOfManyRuns$"},
	}},
	{streams, []mutant{
		{"live events count against a reader after it has taken them", streams + "/reader.go", []string{"			r.buffered.Add(-int64(len(e.frame)))\n", ""}, "TestReaderOfManyLiveEvents$"},
	}},
	{effects, []mutant{
		{"a redacted part keeps its sealed content", "internal/engine/effect/redact.go", []string{"rest[i].Text, rest[i].Opaque, rest[i].OpaqueBy, redacted = redacted, nil, \"\", \"\"", "rest[i].Text, redacted = redacted, \"\""}, "TestSpreadSecret$"},
		{"a tool starts after an abort that its record has reported", tools, []string{"		if ctx.Err() != nil {\n			return loop.Aborted{Started: started", "		if false {\n			return loop.Aborted{Started: started"}, "TestNothingStartsAfterAPendingAbort$"},
		{"a result stays in memory while other calls run", tools, []string{"			if err := t.Journal.Result(ctx", "			if len(results) < len(effect.Calls) {\n				t.Journal.Keep(results)\n				continue\n			}\n			if err := t.Journal.Result(ctx"}, "TestResultIsRecordedWhileOthersRun$"},
		{"a large result is left to the commit", tools, []string{"const smallTurn = 32 << 10", "const smallTurn = 32 << 20"}, "TestLastResultIsHeld$"},
		{"a fenced turn starts its next calls", tools, []string{"		if failed != nil {\n			return nil, failed", "		if false {\n			return nil, failed"}, "TestFencedTurnStartsNoFurtherBatch$"},
		{"a finding of a probe is not recorded", probe, []string{"if err := t.Journal.Finding(ctx, t.Run.Log, &r); err != nil {", "if err := error(nil); err != nil {"}, "TestProbeOutcomes$"},
		{"the cost of a model call that was cut short is dropped", effects + "/model.go", []string{"Partial: c.said(), Spent: c.spent}\n		if len", "Partial: c.said()}\n		if len"}, "TestCutModelCallReportsItsCost$"},
		{"an estimate is not corrected by the response's tokens", effects + "/quota.go", []string{"usage.InputTokens + usage.OutputTokens - p.tokens", "usage.InputTokens - p.tokens"}, "TestEstimateIsCorrectedByAllTokens$"},
		{"a turn waits for an hour for its quota", effects + "/quota.go", []string{"shortWait = 2 * time.Second", "shortWait = time.Hour"}, "TestQuotaWait$"},
	}},
	{turns, []mutant{
		{"an aborted turn waits for late results", claim, []string{"c.Attempt != 2 || c.Abort != nil || k.cfg", "c.Attempt != 2 || k.cfg"}, "TestAbortEndsTheWaitForLateResults$"},
		{"pauses of workers poison a turn", claim, []string{"Poisoned: c.Attempt-c.Paused > maxAttempts", "Poisoned: c.Attempt > maxAttempts"}, "TestPausesDoNotPoison$"},
		{"a turn waits for a quota with a result in memory", act, []string{"(next != nil || !t.commitsNext())", "!t.commitsNext()"}, "TestResultIsRecordedBeforeAQuotaWait$"},
		{"a noisy turn waits with a result in memory", act, []string{" && t.load.TryWork()", ""}, "TestResultIsRecordedBeforeANoisyTurnWaits$"},
		{"a write without an answer is not repeated", journal, []string{"		if final(err) || !clock.Pause(within, storePause) {\n			return fmt", "		if true {\n			return fmt"}, "TestWritesAreRepeated$"},
		{"a run that continues hands over the figures of its discarded end", commit, []string{"c.State, c.Consumed, c.Figures = t.s, len(t.claim.Signals), state.EndFigures(t.s)", "c.State, c.Consumed = t.s, len(t.claim.Signals)"}, "TestContinuedTurnHasNoFigures$"},
		{"a turn commits the state from before the late signals", commit, []string{"c.State, c.Consumed, c.Figures = t.s, len(", "c.Consumed, c.Figures = len("}, "TestContinuedTurnHasNoFigures$"},
		{"a turn that stops loses the cost of its model call", act, []string{"		t.recordSpent(ctx, cut)\n", "		_ = cut\n"}, "TestShutdownReleasesTheTurn$"},
	}},
	{service, []mutant{
		{"a cancellation of many ignores the time of creation", cancels, []string{"	set(\"created_before\", in.CreatedBefore)\n", ""}, "TestCancelFilterUsesEachField$"},
		{"deliveries that wait are not spread", "internal/service/rate.go", []string{"l.taken[n-limit] + rateWindow", "l.taken[0] + rateWindow"}, "TestReservationsAreSpread$"},
		{"a paused trigger is read", service + "/triggering.go", []string{"		case r.stored.Paused:\n", "		case false:\n"}, "TestTriggersThatAreNotRead$"},
		{"a key of a request is the key of a firing", service + "/schedules.go", []string{"sub.key = \"request \" + key", "sub.key = key"}, "TestKeyOfARequestIsNoFiring$"},
	}},
	{webhooks, []mutant{
		{"the window of a replay begins with its event", webhooks + "/sender.go", []string{"	if !again {\n		since = e.at.Time\n	}\n", "	since = e.at.Time\n"}, "TestReplayOfAnOldEvent$"},
	}},
	{agents, []mutant{
		{"the deadline of an agent replaces an earlier one", agents + "/agent.go", []string{"l.DeadlineAt.IsZero() || own.Before(l.DeadlineAt.Time)", "true"}, "TestTighten$"},
	}},
	{loops, []mutant{
		{"input tokens do not count in the share of a child", loops + "/child.go", []string{"s.Usage.InputTokens+s.Usage.OutputTokens", "s.Usage.OutputTokens"}, "TestChildrenShareBudget$"},
		{"children that are at work do not count", loops + "/tools.go", []string{"		if o.Needs == state.NeedChild {\n			children++\n		}\n", ""}, "TestDelegationBesideWaitingChildren$"},
		{"a checkpoint forgets the arguments that an approval edited", views, []string{"			c.edit(in, e.Message.ID, e.Arguments)\n", ""}, "TestEditedCallIsReusedAsEditedBehindCheckpoint$"},
	}},
	{a2a, []mutant{
		{"a redirect carries a task to another server", a2a + "/a2atool.go", []string{"	own.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }\n", ""}, "TestRedirects$"},
	}},
	{mcp, []mutant{
		{"an answer is given to another question", mcp + "/session.go", []string{"e.Answer != nil && same(e.Asked, asked)", "e.Answer != nil"}, "TestAnswerToAnotherQuestion$"},
	}},
	{openai, []mutant{
		{"the reasoning of earlier turns is sent", openai + "/chat_request.go", []string{"current := 1 + lastUser(in)", "current := 0"}, "TestReasoningOfEarlierTurns$"},
	}},
	{worker, []mutant{
		{"a child does not ask whether its parent was interrupted", rest, []string{" || !slices.ContainsFunc(parent.Open, func(o state.OpenCall) bool { return o.Child == s.ID }):", ":", "	\"slices\"\n", ""}, "^TestOrphanOfAnInterrupt$"},
		{"an interrupt is not passed to children", rest, []string{"t.s.Status.Terminal() || t.s.Transition.Reason == state.Interrupted", "t.s.Status.Terminal()"}, "^TestInterrupt"},
		{"a worker does not ask the store about an interrupt", leases, []string{"		l.hinted = true\n", ""}, "^TestInterrupt"},
		{"an interrupt leaves waits open", inbox, []string{"	r.closeWaits(s)\n	r.Interrupted", "	r.Interrupted"}, "^TestInterrupt"},

		{"an eager claim never ages", eager, []string{"return c, time.Since(c.Sent) < e.lasts\n", "return c, true\n"}, "TestEagerClaimAges$"},
		{"an eager claim is used twice", eager, []string{"			delete(runs, msg.Run)\n			return c, time", "			return c, time"}, "TestEagerClaimIsUsedOnce$"},
		{"a worker that stops keeps its eager claims", eager, []string{"		if c.Sent.After(since) {\n", "		if false {\n"}, "TestEagerClaimIsReleased$"},
		{"a deaf worker judges others", members, []string{"	if m.deaf(m.unreachableAfter() / 2) {\n", "	if false {\n", " || m.deaf(2*every)", ""}, "TestDeafWorkerEvictsNoOther$"},
		{"an eviction that failed is not repeated", members, []string{"if _, heard := m.seen[id]; !heard && !done {", "if false {", "			if done && m.unheard(id) {", "			if m.unheard(id) {"}, "TestEvictionIsTriedAgain$"},
		{"a worker that restarts leaves its turns to their leases", members, []string{"due, err := m.store.Evict(ctx, m.self.ID, evictPart, m.periods.RedeliveryDelay)", "var due []state.Due; var err error"}, "TestRestartUnderTheSameID$"},
		{"a worker with more than its share keeps the next turns", "internal/worker/sticky.go", []string{"ours := !w.members.OverShare()", "ours := true"}, "TestWorkerOverItsShare$"},
		{"a worker that stops leaves the turns in its own queue", "internal/worker/worker.go", []string{"			w.drainSticky(writing, finished)\n", ""}, "TestStickyTurnOfAStoppedWorker$"},
		{"turns of noisy tenants overtake in the own queue of a worker", "internal/worker/sticky.go", []string{"return !w.tenants.Shared() || !noisy && !w.tenants.Noisy(tenant)", "return true"}, "TestTurnsOfNoisyTenantsAreNotSticky$"},
		{"a worker claims eagerly beside one that takes nothing over", members, []string{"	if !other.takesOver {\n		m.leases.AllowEager(false)\n	}\n", "", "		known = known && other.takesOver\n", "		_ = other\n"}, "TestNoEagerClaim"},
	}},
	{natsbus, []mutant{
		{"a worker that starts knows of no readers", "pkg/bus/natsbus/watchers.go", []string{"	if now.Before(w.known) {\n		return true\n", "	if false {\n		return true\n"}, "^TestBusInProcess$/^Watchers$"},
		{"a notice before its watch is known is lost", "pkg/bus/natsbus/watchers.go", []string{"			w.release(run, late)\n", ""}, "^TestBusInProcess$/^Watchers$"},
		{"a deletion reads one page of dead letters", "pkg/bus/natsbus/control.go", []string{"		letters = len(page) == letterPage\n", "		letters = false\n"}, "^TestBusInProcess$/^PurgeOfManyLetters"},
		{"a watch never expires", "pkg/bus/natsbus/watchers.go", []string{"	return now.Before(w.until[string(run)])\n", "	return !w.until[string(run)].IsZero()\n"}, "TestWatchesExpire$"},
	}},
	{natsstore, []mutant{
		{"an interrupted deletion frees the key of a newer run", natsstore + "/deletion.go", []string{" && strings.HasPrefix(string(m.Data), string(id)+\" \") {", " && strings.Contains(string(m.Data), \" \") {"}, "TestDeletionLeavesTheKeyOfANewerRun$"},
		{"an interrupted fold counts figures twice", natsstore + "/figures.go", []string{"			if m.seq > before {", "			if m.seq > 0 {"}, "TestFiguresOfAnInterruptedFold$"},
		{"the stream keeps each version of a document", natsstore + "/documents.go", []string{"	return s.forgetDocument(ctx, kind, d.Name, at)", "	_ = at\n	return nil"}, "TestStreamKeepsNothingOld$"},
	}},
	{files, []mutant{
		{"a batch that was deleted in part loses its files", files + "/delete.go", []string{"		deleted = deleted && errors.Is(err, state.ErrDeleted)", "		deleted = errors.Is(err, state.ErrDeleted)"}, "TestBatchThatWasDeletedInPart$"},
	}},
}
