-- As in the migration before.
SET LOCAL lock_timeout = '5s';

-- IF NOT EXISTS, because the indexes below need these, and on a large table can
-- be made before the migration, CONCURRENTLY, while the service runs.
ALTER TABLE {{schema}}.executions
	ADD COLUMN IF NOT EXISTS gate         json,
	ADD COLUMN IF NOT EXISTS inbox        json,
	ADD COLUMN IF NOT EXISTS waits_at     text,
	ADD COLUMN IF NOT EXISTS waits_since  timestamptz,
	ADD COLUMN IF NOT EXISTS deadline     timestamptz,
	ADD COLUMN IF NOT EXISTS parent       uuid,
	ADD COLUMN IF NOT EXISTS parent_step  text,
	ADD COLUMN IF NOT EXISTS parent_key   text,
	ADD COLUMN IF NOT EXISTS follows      uuid,
	ADD COLUMN IF NOT EXISTS replaced_by  uuid,
	ADD COLUMN IF NOT EXISTS continues    uuid,
	ADD COLUMN IF NOT EXISTS continued_as uuid,
	ADD COLUMN IF NOT EXISTS tags         json;

DO $$
DECLARE
	failed regclass;
BEGIN
	SELECT i.indexrelid INTO failed FROM pg_catalog.pg_index AS i JOIN pg_catalog.pg_class AS c ON c.oid = i.indexrelid
	WHERE i.indrelid = '{{schema}}.executions'::regclass AND NOT i.indisvalid
		AND c.relname IN ('executions_holder', 'executions_waiting', 'executions_start_key', 'executions_children');
	IF failed IS NOT NULL THEN
		RAISE EXCEPTION 'index % is not valid, because CREATE INDEX CONCURRENTLY failed: drop it, and make it again or let the migration make it', failed;
	END IF;
END $$;

-- In the place of executions_key: what follows another one does not hold its key.
CREATE UNIQUE INDEX IF NOT EXISTS executions_holder ON {{schema}}.executions (saga, key)
	WHERE key <> '' AND status IN ('running', 'waiting', 'halted', 'compensating', 'compensation_failed') AND follows IS NULL;
DROP INDEX {{schema}}.executions_key;

-- For those that wait at one kind of gate. Both columns are NULL while an
-- execution makes its steps, so that these stay HOT.
CREATE INDEX IF NOT EXISTS executions_waiting ON {{schema}}.executions (saga, waits_at, waits_since, id) WHERE waits_at IS NOT NULL;

-- Nothing in these changes.
CREATE INDEX IF NOT EXISTS executions_start_key ON {{schema}}.executions (key, id) WHERE key <> '';

CREATE INDEX IF NOT EXISTS executions_children ON {{schema}}.executions (parent, id) WHERE parent IS NOT NULL;

-- The tags of all executions once more, to find these by them, the newest first.
-- Not an index on the column: an update that is not HOT would have to write it.
CREATE TABLE {{schema}}.tags (
	name      text COLLATE "C" NOT NULL,
	value     text COLLATE "C" NOT NULL,
	execution uuid NOT NULL,
	PRIMARY KEY (name, value, execution)
) WITH (
	autovacuum_vacuum_scale_factor = 0.02,
	autovacuum_analyze_scale_factor = 0.05,
	autovacuum_vacuum_insert_scale_factor = 0.05
);

-- Whoever may use the executions may use their tags.
DO $$
DECLARE
	g record;
BEGIN
	FOR g IN SELECT a.grantee, a.privilege_type
		FROM pg_catalog.pg_class AS c, pg_catalog.aclexplode(c.relacl) AS a
		WHERE c.oid = '{{schema}}.executions'::regclass AND a.grantee <> c.relowner
			AND a.privilege_type IN ('SELECT', 'INSERT', 'UPDATE', 'DELETE')
	LOOP
		EXECUTE format('GRANT %s ON {{schema}}.tags TO %s', g.privilege_type,
			CASE WHEN g.grantee = 0 THEN 'PUBLIC' ELSE g.grantee::regrole::text END);
	END LOOP;
END $$;
