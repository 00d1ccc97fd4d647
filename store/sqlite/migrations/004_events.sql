-- floor: 3
-- A library of schema 3 leaves events as they are.
ALTER TABLE {{executions}} ADD COLUMN events INTEGER;

-- The changes of status that other services are to be told of.
CREATE TABLE {{events}} (
	execution     TEXT    NOT NULL,
	revision      INTEGER NOT NULL,
	saga          TEXT    NOT NULL,
	version       INTEGER NOT NULL,
	"partition"   TEXT    NOT NULL,
	resource_type TEXT    NOT NULL,
	resource_id   TEXT    NOT NULL,
	"key"         TEXT    NOT NULL,
	status        TEXT    NOT NULL,
	previous      TEXT    NOT NULL,
	step          TEXT    NOT NULL,
	direction     TEXT    NOT NULL,
	epoch         INTEGER NOT NULL,
	failure_class TEXT,
	failure_step  TEXT,
	trace_parent  TEXT    NOT NULL,
	at            INTEGER NOT NULL,
	due_at        INTEGER NOT NULL,
	PRIMARY KEY (execution, revision)
) STRICT;

CREATE INDEX {{events_at}} ON {{events}} (at, execution, revision);

CREATE TRIGGER {{events_created}} AFTER INSERT ON {{executions}} WHEN new.events BEGIN
	INSERT INTO {{events}} VALUES (new.id, new.revision, new.saga, new.version, new."partition", new.resource_type, new.resource_id,
		new."key", new.status, '', new.step, new.direction, new.epoch, new.failure_class, new.failure_step, new.trace_parent,
		new.updated_at, new.updated_at);
END;
CREATE TRIGGER {{events_changed}} AFTER UPDATE OF status, events ON {{executions}}
WHEN new.events AND (new.status <> old.status OR old.events IS NULL) BEGIN
	INSERT INTO {{events}} VALUES (new.id, new.revision, new.saga, new.version, new."partition", new.resource_type, new.resource_id,
		new."key", new.status, CASE WHEN old.events THEN old.status ELSE '' END, new.step, new.direction, new.epoch,
		new.failure_class, new.failure_step, new.trace_parent, new.updated_at, new.updated_at);
END;
