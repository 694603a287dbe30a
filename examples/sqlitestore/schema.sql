-- Times are milliseconds since 1970, by the clock of the machine.
CREATE TABLE IF NOT EXISTS runs (
  id        TEXT PRIMARY KEY,
  tenant    TEXT NOT NULL,
  agent     TEXT NOT NULL,
  parent    TEXT NOT NULL,
  batch     TEXT NOT NULL,
  shard     INTEGER NOT NULL,
  format    INTEGER NOT NULL,
  status    TEXT NOT NULL,    -- of the schedule, not of the header
  due       INTEGER,          -- NULL: never
  owner     TEXT NOT NULL,    -- the worker that holds the lease, or empty
  log_len   INTEGER NOT NULL,
  header    BLOB NOT NULL,    -- as the last transition left it
  turn      BLOB NOT NULL     -- of the turn that follows it, see turn
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS runs_due ON runs (due) WHERE due IS NOT NULL;
CREATE INDEX IF NOT EXISTS runs_owner ON runs (owner) WHERE owner <> '';
CREATE INDEX IF NOT EXISTS runs_tenant ON runs (tenant, id);
CREATE INDEX IF NOT EXISTS runs_agent ON runs (tenant, agent, id);
CREATE INDEX IF NOT EXISTS runs_parent ON runs (parent) WHERE parent <> '';
CREATE INDEX IF NOT EXISTS runs_batch ON runs (batch) WHERE batch <> '';
CREATE INDEX IF NOT EXISTS runs_status ON runs (status, id);
CREATE INDEX IF NOT EXISTS runs_active ON runs (tenant, shard) WHERE status IN ('queued', 'running');

-- Values of metadata keys that the run's tenant indexes.
CREATE TABLE IF NOT EXISTS metadata (
  name TEXT NOT NULL, -- of a key with a value, see state.IndexName
  run  TEXT NOT NULL,
  PRIMARY KEY (name, run)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS metadata_run ON metadata (run);

-- The log: committed entries, then those that the turn in flight has journaled.
CREATE TABLE IF NOT EXISTS entries (
  run  TEXT NOT NULL,
  seq  INTEGER NOT NULL,
  data BLOB NOT NULL,
  PRIMARY KEY (run, seq)
) WITHOUT ROWID;

-- Results that the turn in flight has journaled.
CREATE TABLE IF NOT EXISTS results (
  run  TEXT NOT NULL,
  call TEXT NOT NULL,
  data BLOB NOT NULL,
  PRIMARY KEY (run, call)
) WITHOUT ROWID;

CREATE TABLE IF NOT EXISTS inbox (
  n    INTEGER PRIMARY KEY AUTOINCREMENT, -- in the order of arrival
  run  TEXT NOT NULL,
  data TEXT NOT NULL  -- a state.Signal
);
CREATE INDEX IF NOT EXISTS inbox_run ON inbox (run, n);

-- Keys of the signals that a run has had.
CREATE TABLE IF NOT EXISTS seen (
  n           INTEGER PRIMARY KEY AUTOINCREMENT,
  run         TEXT NOT NULL,
  key         TEXT NOT NULL,
  fingerprint TEXT NOT NULL,
  UNIQUE (run, key)
);
CREATE INDEX IF NOT EXISTS seen_run ON seen (run, n);

-- Idempotency keys of submissions.
CREATE TABLE IF NOT EXISTS keys (
  tenant      TEXT NOT NULL,
  key         TEXT NOT NULL,
  run         TEXT NOT NULL,
  fingerprint TEXT NOT NULL,
  PRIMARY KEY (tenant, key)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS keys_run ON keys (run);

-- Descendants that Admit has counted.
CREATE TABLE IF NOT EXISTS trees (
  root TEXT NOT NULL,
  run  TEXT NOT NULL,
  PRIMARY KEY (root, run)
) WITHOUT ROWID;

-- Markers of deleted runs.
CREATE TABLE IF NOT EXISTS deleted (
  run    TEXT PRIMARY KEY,
  tenant TEXT NOT NULL,
  until  INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS deleted_until ON deleted (until);

CREATE TABLE IF NOT EXISTS batches (
  first TEXT PRIMARY KEY,
  data  BLOB NOT NULL,  -- a state.DeletedBatch
  until INTEGER         -- NULL while the batch has runs
) WITHOUT ROWID;

CREATE TABLE IF NOT EXISTS heartbeats (
  worker TEXT PRIMARY KEY,
  until  INTEGER NOT NULL
) WITHOUT ROWID;

-- Sums over the runs that have ended, see state.HourlyFigures.
CREATE TABLE IF NOT EXISTS figures (
  tenant TEXT NOT NULL,
  hour   INTEGER NOT NULL, -- its beginning
  agent  TEXT NOT NULL,
  model  TEXT NOT NULL,
  sums   TEXT NOT NULL,    -- state.Figures
  PRIMARY KEY (tenant, hour, agent, model)
) WITHOUT ROWID;
