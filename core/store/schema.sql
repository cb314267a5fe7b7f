-- schema.sql - defines the store of runs, one SQLite file. Other programs may rely on the views
-- v_*.
--
-- A section "-- version N" upgrades a store from version N-1 to N; a new store runs all sections.
-- What released sections make is never changed: add one, and raise STORE_VERSION in store.h. (The
-- triggers that section 1 once had do not run any more.) Times are
-- seconds since 1970.

-- version 1

CREATE TABLE sweeps ( -- one script in one frozen form with its overrides
    id         INTEGER PRIMARY KEY,
    experiment TEXT NOT NULL,
    script     TEXT NOT NULL,           -- path as given
    sha256     TEXT NOT NULL,           -- of source
    source     TEXT NOT NULL,           -- text of the script
    command    TEXT NOT NULL,           -- the whole command line
    scale      TEXT NOT NULL DEFAULT '',
    plan       TEXT NOT NULL DEFAULT '{}' CHECK (json_valid(plan)),
    created    REAL NOT NULL DEFAULT ((julianday('now') - 2440587.5) * 86400.0)
);
CREATE INDEX sweeps_experiment ON sweeps (experiment, created);

CREATE TABLE trials (
    id         TEXT PRIMARY KEY NOT NULL, -- hash of configuration, code, data and seed
    sweep      INTEGER REFERENCES sweeps (id) ON DELETE SET NULL, -- the one that first asked for it
    experiment TEXT NOT NULL,
    config     TEXT NOT NULL DEFAULT '{}' CHECK (json_valid(config)), -- resolved, every option
    seed       INTEGER NOT NULL DEFAULT 1,
    code_hash  TEXT NOT NULL DEFAULT '',
    data_hash  TEXT NOT NULL DEFAULT '',
    status     TEXT NOT NULL DEFAULT 'queued'
               CHECK (status IN ('queued', 'running', 'done', 'failed', 'interrupted')),
    attempt    INTEGER NOT NULL DEFAULT 0,
    step       INTEGER,                 -- the last one that is safe in a checkpoint
    created    REAL NOT NULL DEFAULT ((julianday('now') - 2440587.5) * 86400.0),
    started    REAL,
    finished   REAL,
    host       TEXT,
    pid        INTEGER,
    error      TEXT,
    command    TEXT,
    git_commit TEXT,
    git_dirty  INTEGER,
    provenance TEXT NOT NULL DEFAULT '{}' CHECK (json_valid(provenance)),
    tags       TEXT NOT NULL DEFAULT '',  -- words separated by spaces
    notes      TEXT NOT NULL DEFAULT ''
);
CREATE INDEX trials_experiment ON trials (experiment, status);
CREATE INDEX trials_status ON trials (status);

-- SQLite stores NaN as NULL.
CREATE TABLE metrics (
    trial TEXT NOT NULL REFERENCES trials (id) ON DELETE CASCADE,
    name  TEXT NOT NULL,
    step  INTEGER NOT NULL CHECK (typeof(step) = 'integer'),
    value REAL CHECK (typeof(value) IN ('real', 'null')),
    PRIMARY KEY (trial, name, step)
) WITHOUT ROWID;

-- The newest row of each series, which store/replay.lua keeps, so that a table of thousands of
-- trials need not scan millions of rows. In older stores triggers kept it, and are still there: no
-- connection of ours runs any.
CREATE TABLE last (
    trial TEXT NOT NULL,
    name  TEXT NOT NULL,
    step  INTEGER NOT NULL,
    value REAL,
    PRIMARY KEY (trial, name)
) WITHOUT ROWID;

-- Inserting the row is the commit: it happens after the file has its final name. A file without a
-- row is garbage.
CREATE TABLE artifacts (
    trial   TEXT NOT NULL REFERENCES trials (id) ON DELETE CASCADE,
    kind    TEXT NOT NULL,              -- 'checkpoint', 'sample', ...
    step    INTEGER NOT NULL DEFAULT 0,
    path    TEXT NOT NULL UNIQUE,       -- relative to the results folder
    bytes   INTEGER NOT NULL CHECK (bytes >= 0),
    sha256  TEXT NOT NULL CHECK (length(sha256) = 64),
    created REAL NOT NULL DEFAULT ((julianday('now') - 2440587.5) * 86400.0),
    PRIMARY KEY (trial, kind, step)
) WITHOUT ROWID;

-- version 2

CREATE VIEW v_trials AS
SELECT id, experiment, sweep, status, seed, attempt, step, created, started, finished,
       finished - started AS seconds, host, error, command, git_commit, git_dirty, code_hash,
       data_hash, config, provenance, tags, notes
FROM trials;

CREATE VIEW v_metrics AS SELECT trial, name, step, value FROM metrics;

CREATE VIEW v_last AS SELECT trial, name, step, value FROM last;

CREATE VIEW v_artifacts AS SELECT trial, kind, step, path, bytes, sha256, created FROM artifacts;

-- version 3

ALTER TABLE trials ADD COLUMN seconds REAL; -- of all attempts, up to what is safe in a checkpoint
UPDATE trials SET seconds = finished - started;

DROP VIEW v_trials;
CREATE VIEW v_trials AS
SELECT id, experiment, sweep, status, seed, attempt, step, created, started, finished,
       seconds, host, error, command, git_commit, git_dirty, code_hash,
       data_hash, config, provenance, tags, notes
FROM trials;

-- version 4

ALTER TABLE trials ADD COLUMN ended TEXT;   -- why it was ended early: 'pruned', 'timeout', 'budget',
                                            -- 'guard'; NULL: it was not
ALTER TABLE trials ADD COLUMN trashed REAL; -- when it was put into the trash; NULL: it was not
CREATE INDEX trials_started ON trials (started);

CREATE TABLE members ( -- the trials that a sweep asks for, in its order
    sweep    INTEGER NOT NULL REFERENCES sweeps (id) ON DELETE CASCADE,
    position INTEGER NOT NULL,
    trial    TEXT NOT NULL REFERENCES trials (id) ON DELETE CASCADE,
    PRIMARY KEY (sweep, position)
) WITHOUT ROWID;
CREATE INDEX members_trial ON members (trial);

-- How much of the journal of a trial's attempt has been copied into the tables. A worker appends to
-- the journal; the one writer copies it and updates this row in the same transaction.
CREATE TABLE journals (
    trial   TEXT PRIMARY KEY NOT NULL REFERENCES trials (id) ON DELETE CASCADE,
    attempt INTEGER NOT NULL,
    bytes   INTEGER NOT NULL CHECK (bytes >= 0)
) WITHOUT ROWID;

CREATE TABLE events ( -- what was done to a trial besides training it: 'rollback', 'prune', 'retry'
    id      INTEGER PRIMARY KEY,
    trial   TEXT NOT NULL REFERENCES trials (id) ON DELETE CASCADE,
    created REAL NOT NULL DEFAULT ((julianday('now') - 2440587.5) * 86400.0),
    step    INTEGER NOT NULL DEFAULT 0,
    kind    TEXT NOT NULL,
    text    TEXT NOT NULL DEFAULT ''
);
CREATE INDEX events_trial ON events (trial);

DROP VIEW v_trials;
CREATE VIEW v_trials AS
SELECT id, experiment, sweep, coalesce(ended, status) AS status, seed, attempt, step, created,
       started, finished, seconds, host, error, command, git_commit, git_dirty, code_hash,
       data_hash, config, provenance, tags, notes
FROM trials WHERE trashed IS NULL;

CREATE VIEW v_trash AS
SELECT id, experiment, coalesce(ended, status) AS status, seed, config, trashed
FROM trials WHERE trashed IS NOT NULL;

CREATE VIEW v_members AS SELECT sweep, position, trial FROM members;

CREATE VIEW v_events AS SELECT trial, created, step, kind, text FROM events;

-- version 5

-- The training step at which a metric with an index of its own (a lag) was logged; step then holds
-- that index. NULL: step is the training step.
ALTER TABLE metrics ADD COLUMN at INTEGER CHECK (typeof(at) IN ('integer', 'null'));

-- version 6

-- The engine's TL_NUMERICS, which is part of the trial's id. NULL: the id was made by an earlier
-- rule, from a hash of the whole program; trials/identity.lua matches such a trial by its
-- configuration, script, data and seed.
ALTER TABLE trials ADD COLUMN numerics INTEGER;

DROP VIEW v_trials;
CREATE VIEW v_trials AS
SELECT id, experiment, sweep, coalesce(ended, status) AS status, seed, attempt, step, created,
       started, finished, seconds, host, error, command, git_commit, git_dirty, code_hash, numerics,
       data_hash, config, provenance, tags, notes
FROM trials WHERE trashed IS NULL;

-- version 7

-- How much of the folder's news the rows know (store/news.lua).
CREATE TABLE news (
    folder TEXT NOT NULL, -- the first line of the file
    bytes  INTEGER NOT NULL CHECK (bytes >= 0),
    last   TEXT NOT NULL, -- what stands before that byte
    since  REAL           -- when a line was read first whose change is not seen yet
);
