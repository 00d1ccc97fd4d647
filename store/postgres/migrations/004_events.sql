-- As in the migrations before.
SET LOCAL lock_timeout = '5s';

ALTER TABLE {{schema}}.executions ADD COLUMN events boolean;

-- The changes of status that other services are to be told of. The table is small:
-- a row is there until it was sent.
CREATE TABLE {{schema}}.events (
	execution     uuid NOT NULL,
	revision      bigint NOT NULL,
	saga          text COLLATE "C" NOT NULL,
	version       integer NOT NULL,
	partition     text COLLATE "C" NOT NULL,
	resource_type text COLLATE "C" NOT NULL,
	resource_id   text COLLATE "C" NOT NULL,
	key           text COLLATE "C" NOT NULL,
	status        text COLLATE "C" NOT NULL,
	previous      text COLLATE "C" NOT NULL,
	step          text COLLATE "C" NOT NULL,
	direction     text COLLATE "C" NOT NULL,
	epoch         integer NOT NULL,
	failure_class text,
	failure_step  text,
	trace_parent  text NOT NULL,
	at            timestamptz NOT NULL,
	due_at        timestamptz NOT NULL,
	PRIMARY KEY (execution, revision)
) WITH (
	autovacuum_vacuum_threshold = 200,
	autovacuum_vacuum_scale_factor = 0.05
);

CREATE INDEX events_at ON {{schema}}.events (at, execution, revision);

-- A trigger, because the statement that writes an execution does not see what was
-- there before. Its conditions are looked at without a call of the function.
CREATE FUNCTION {{schema}}.record_event() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
	was text := '';
BEGIN
	IF TG_OP = 'UPDATE' AND OLD.events THEN
		was := OLD.status;
	END IF;
	INSERT INTO {{schema}}.events VALUES (NEW.id, NEW.revision, NEW.saga, NEW.version, NEW.partition, NEW.resource_type,
		NEW.resource_id, NEW.key, NEW.status, was, NEW.step, NEW.direction, NEW.epoch, NEW.failure_class, NEW.failure_step,
		NEW.trace_parent, NEW.updated_at, NEW.updated_at);
	RETURN NULL;
END $$;

CREATE TRIGGER events_created AFTER INSERT ON {{schema}}.executions
	FOR EACH ROW WHEN (NEW.events) EXECUTE FUNCTION {{schema}}.record_event();
CREATE TRIGGER events_changed AFTER UPDATE OF status, events ON {{schema}}.executions
	FOR EACH ROW WHEN (NEW.events AND (NEW.status <> OLD.status OR OLD.events IS NULL))
	EXECUTE FUNCTION {{schema}}.record_event();

-- Whoever may use the executions may use their events.
DO $$
DECLARE
	g record;
BEGIN
	FOR g IN SELECT a.grantee, a.privilege_type
		FROM pg_catalog.pg_class AS c, pg_catalog.aclexplode(c.relacl) AS a
		WHERE c.oid = '{{schema}}.executions'::regclass AND a.grantee <> c.relowner
			AND a.privilege_type IN ('SELECT', 'INSERT', 'UPDATE', 'DELETE')
	LOOP
		EXECUTE format('GRANT %s ON {{schema}}.events TO %s', g.privilege_type,
			CASE WHEN g.grantee = 0 THEN 'PUBLIC' ELSE g.grantee::regrole::text END);
	END LOOP;
END $$;
