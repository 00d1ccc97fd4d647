CREATE TABLE {{schema}}.meta (
	name  text PRIMARY KEY,
	value text NOT NULL
);
INSERT INTO {{schema}}.meta (name, value) VALUES ('store', gen_random_uuid()::text);

-- Updates that touch no indexed column stay on their page (HOT): what a step
-- changes (step, epoch, attempt, progress, state) is in no index, nor in the
-- predicate of one.
CREATE TABLE {{schema}}.executions (
	id                  uuid PRIMARY KEY,
	saga                text NOT NULL,
	version             integer NOT NULL,
	partition           text NOT NULL,
	resource_type       text NOT NULL,
	resource_id         text NOT NULL,
	key                 text NOT NULL,
	status              text NOT NULL,
	direction           text NOT NULL,
	step                text NOT NULL,
	epoch               integer NOT NULL,
	ledger              json NOT NULL,
	attempt_number      integer,
	attempt_worker      text,
	attempt_started_at  timestamptz,
	attempt_lease_until timestamptz,
	attempt_timeout_at  timestamptz,
	due_at              timestamptz,
	wake_at             timestamptz,
	offered_at          timestamptz,
	tries               integer NOT NULL,
	resumes             integer NOT NULL,
	failure_class       text,
	failure_message     text,
	failure_step        text,
	reason              text NOT NULL,
	request             json,
	trace_parent        text NOT NULL,
	created_at          timestamptz NOT NULL,
	updated_at          timestamptz NOT NULL,
	progress_at         timestamptz NOT NULL,
	finished_at         timestamptz,
	revision            bigint NOT NULL,
	state               json NOT NULL
) WITH (
	fillfactor = 80,
	autovacuum_vacuum_scale_factor = 0.02,
	autovacuum_analyze_scale_factor = 0.05,
	autovacuum_vacuum_insert_scale_factor = 0.05
);

CREATE INDEX executions_due ON {{schema}}.executions (due_at, id) WHERE due_at IS NOT NULL;

CREATE UNIQUE INDEX executions_key ON {{schema}}.executions (saga, key)
	WHERE key <> '' AND status IN ('running', 'waiting', 'halted', 'compensating', 'compensation_failed');

CREATE INDEX executions_resource ON {{schema}}.executions (resource_type, resource_id, id DESC)
	WHERE resource_id <> '';

CREATE INDEX executions_unfinished ON {{schema}}.executions (id)
	WHERE status IN ('running', 'waiting', 'halted', 'compensating');

CREATE TABLE {{schema}}.attempts (
	execution       uuid NOT NULL,
	step            text NOT NULL,
	direction       text NOT NULL,
	epoch           integer NOT NULL,
	number          integer NOT NULL,
	worker          text NOT NULL,
	status          text NOT NULL,
	started_at      timestamptz NOT NULL,
	finished_at     timestamptz,
	lease_until     timestamptz NOT NULL,
	failure_class   text,
	failure_message text,
	failure_step    text,
	stack           text NOT NULL,
	reason          text NOT NULL,
	late            boolean NOT NULL,
	late_status     text NOT NULL,
	seq             bigint GENERATED ALWAYS AS IDENTITY,
	PRIMARY KEY (execution, step, direction, epoch, number)
) WITH (
	autovacuum_vacuum_scale_factor = 0.02,
	autovacuum_vacuum_insert_scale_factor = 0.05
);

CREATE TABLE {{schema}}.audit (
	execution     uuid NOT NULL,
	seq           bigint GENERATED ALWAYS AS IDENTITY,
	at            timestamptz NOT NULL,
	act           text NOT NULL,
	actor         text NOT NULL,
	reason        text NOT NULL,
	status_before text NOT NULL,
	status_after  text NOT NULL,
	PRIMARY KEY (execution, seq)
);

CREATE TABLE {{schema}}.cells (
	name     text COLLATE "C" PRIMARY KEY,
	value    json NOT NULL,
	revision bigint NOT NULL
);
