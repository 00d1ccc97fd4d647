-- Whoever waits for a lock makes all others wait that come later. So give up
-- soon, with nothing done; Migrate tries again.
SET LOCAL lock_timeout = '5s';

-- The defaults are constants, so no row is written.
ALTER TABLE {{schema}}.executions
	ADD COLUMN attempt_progress json,
	ADD COLUMN cause            json,
	ADD COLUMN turn             text NOT NULL DEFAULT '',
	ADD COLUMN reason_by        text NOT NULL DEFAULT '',
	ADD COLUMN rerun_of         uuid,
	ADD COLUMN rerun_as         uuid,
	ADD COLUMN erased_at        timestamptz,
	ADD COLUMN checkpoint       json,
	ADD COLUMN initial          json;

ALTER TABLE {{schema}}.audit
	ADD COLUMN request text NOT NULL DEFAULT '',
	ADD COLUMN digest  text NOT NULL DEFAULT '',
	ADD COLUMN detail  json;

CREATE UNIQUE INDEX audit_request ON {{schema}}.audit (execution, request) WHERE request <> '';

-- For the lists. Nothing in these indexes changes before an execution ends, and
-- one that completes, as most do, is in the first only. On a large table they
-- can be made before the migration, CONCURRENTLY, while the service runs.
DO $$
DECLARE
	failed regclass;
BEGIN
	SELECT i.indexrelid INTO failed FROM pg_catalog.pg_index AS i JOIN pg_catalog.pg_class AS c ON c.oid = i.indexrelid
	WHERE i.indrelid = '{{schema}}.executions'::regclass AND NOT i.indisvalid
		AND c.relname IN ('executions_finished', 'executions_unsuccessful');
	IF failed IS NOT NULL THEN
		RAISE EXCEPTION 'index % is not valid, because CREATE INDEX CONCURRENTLY failed: drop it, and make it again or let the migration make it', failed;
	END IF;
END $$;

CREATE INDEX IF NOT EXISTS executions_finished ON {{schema}}.executions (status, finished_at, id)
	WHERE finished_at IS NOT NULL;

CREATE INDEX IF NOT EXISTS executions_unsuccessful ON {{schema}}.executions (id, status)
	WHERE status IN ('compensated', 'failed', 'compensation_failed', 'cancelled');
