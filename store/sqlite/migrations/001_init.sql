-- floor: 1
CREATE TABLE {{executions}} (
	id                  TEXT    NOT NULL PRIMARY KEY, -- ids as text: as long as they have one form, their order is that of their bytes
	saga                TEXT    NOT NULL,
	version             INTEGER NOT NULL,
	"partition"         TEXT    NOT NULL,
	resource_type       TEXT    NOT NULL,
	resource_id         TEXT    NOT NULL,
	"key"               TEXT    NOT NULL,
	status              TEXT    NOT NULL,
	direction           TEXT    NOT NULL,
	step                TEXT    NOT NULL,
	epoch               INTEGER NOT NULL,
	ledger              TEXT    NOT NULL,
	attempt_number      INTEGER,
	attempt_worker      TEXT,
	attempt_started_at  INTEGER, -- all times: microseconds since 1970, UTC
	attempt_lease_until INTEGER,
	attempt_timeout_at  INTEGER,
	due_at              INTEGER,
	wake_at             INTEGER,
	offered_at          INTEGER,
	tries               INTEGER NOT NULL,
	resumes             INTEGER NOT NULL,
	failure_class       TEXT,
	failure_message     TEXT,
	failure_step        TEXT,
	reason              TEXT    NOT NULL,
	request             TEXT,
	trace_parent        TEXT    NOT NULL,
	created_at          INTEGER NOT NULL,
	updated_at          INTEGER NOT NULL,
	progress_at         INTEGER NOT NULL,
	finished_at         INTEGER,
	revision            INTEGER NOT NULL,
	state               TEXT    NOT NULL -- last: what it overflows to is read only when asked for
) STRICT;

-- The partition is the last column, so that a claim for one of them does not
-- read the rows of the others.
CREATE INDEX {{executions_due}} ON {{executions}} (due_at, id, "partition") WHERE due_at IS NOT NULL;
-- Not by progress, which every step moves: the unfinished rows are read and sorted.
CREATE INDEX {{executions_live}} ON {{executions}} (id) WHERE status IN ('running', 'waiting', 'halted', 'compensating');
CREATE INDEX {{executions_resource}} ON {{executions}} (resource_type, resource_id, id);
CREATE UNIQUE INDEX {{executions_key}} ON {{executions}} (saga, "key")
	WHERE "key" <> '' AND status IN ('running', 'waiting', 'halted', 'compensating', 'compensation_failed');

CREATE TABLE {{attempts}} (
	seq             INTEGER NOT NULL PRIMARY KEY, -- the order of the inserts
	execution       TEXT    NOT NULL,
	step            TEXT    NOT NULL,
	direction       TEXT    NOT NULL,
	epoch           INTEGER NOT NULL,
	"number"        INTEGER NOT NULL,
	worker          TEXT    NOT NULL,
	status          TEXT    NOT NULL,
	started_at      INTEGER NOT NULL,
	finished_at     INTEGER,
	lease_until     INTEGER NOT NULL,
	failure_class   TEXT,
	failure_message TEXT,
	failure_step    TEXT,
	stack           TEXT    NOT NULL,
	reason          TEXT    NOT NULL,
	late            INTEGER NOT NULL,
	late_status     TEXT    NOT NULL,
	UNIQUE (execution, step, direction, epoch, "number")
) STRICT;

CREATE TABLE {{audit}} (
	seq           INTEGER NOT NULL PRIMARY KEY,
	execution     TEXT    NOT NULL,
	"at"          INTEGER NOT NULL,
	act           TEXT    NOT NULL,
	actor         TEXT    NOT NULL,
	reason        TEXT    NOT NULL,
	status_before TEXT    NOT NULL,
	status_after  TEXT    NOT NULL
) STRICT;
CREATE INDEX {{audit_execution}} ON {{audit}} (execution);

CREATE TABLE {{cells}} (
	name     TEXT    NOT NULL PRIMARY KEY,
	value    TEXT    NOT NULL,
	revision INTEGER NOT NULL
) STRICT;

CREATE TABLE {{meta}} (
	name  TEXT NOT NULL PRIMARY KEY,
	value TEXT NOT NULL
) STRICT;
