-- As in the migrations before.
SET LOCAL lock_timeout = '5s';

-- As in the second: on a large table these can be made before the migration,
-- CONCURRENTLY, while the service runs.
DO $$
DECLARE
	failed regclass;
BEGIN
	SELECT i.indexrelid INTO failed FROM pg_catalog.pg_index AS i JOIN pg_catalog.pg_class AS c ON c.oid = i.indexrelid
	WHERE i.indrelid IN ('{{schema}}.executions'::regclass, '{{schema}}.attempts'::regclass) AND NOT i.indisvalid
		AND c.relname IN ('executions_created', 'attempts_finished', 'attempts_failed');
	IF failed IS NOT NULL THEN
		RAISE EXCEPTION 'index % is not valid, because CREATE INDEX CONCURRENTLY failed: drop it, and make it again or let the migration make it', failed;
	END IF;
END $$;

-- Nothing in these changes.
CREATE INDEX IF NOT EXISTS executions_created ON {{schema}}.executions (created_at, saga);

CREATE INDEX IF NOT EXISTS attempts_finished ON {{schema}}.attempts (finished_at);

CREATE INDEX IF NOT EXISTS attempts_failed ON {{schema}}.attempts (finished_at, failure_class, step) WHERE failure_class IS NOT NULL;
