-- floor: 3
-- Not 2: a library of schema 2 would open attempts whatever an execution waits
-- for.
ALTER TABLE {{executions}} ADD COLUMN gate TEXT;
ALTER TABLE {{executions}} ADD COLUMN inbox TEXT;
ALTER TABLE {{executions}} ADD COLUMN waits_at TEXT;
ALTER TABLE {{executions}} ADD COLUMN waits_since INTEGER;
ALTER TABLE {{executions}} ADD COLUMN deadline INTEGER;
ALTER TABLE {{executions}} ADD COLUMN parent TEXT;
ALTER TABLE {{executions}} ADD COLUMN parent_step TEXT;
ALTER TABLE {{executions}} ADD COLUMN parent_key TEXT;
ALTER TABLE {{executions}} ADD COLUMN follows TEXT;
ALTER TABLE {{executions}} ADD COLUMN replaced_by TEXT;
ALTER TABLE {{executions}} ADD COLUMN continues TEXT;
ALTER TABLE {{executions}} ADD COLUMN continued_as TEXT;
ALTER TABLE {{executions}} ADD COLUMN tags TEXT;

-- In the place of executions_key: what follows another one does not hold its key.
CREATE UNIQUE INDEX {{executions_holder}} ON {{executions}} (saga, "key")
	WHERE "key" <> '' AND status IN ('running', 'waiting', 'halted', 'compensating', 'compensation_failed') AND follows IS NULL;
DROP INDEX {{executions_key}};

-- For those that wait at one kind of gate. Both columns are NULL while an
-- execution makes its steps, so that these do not write the index.
CREATE INDEX {{executions_waiting}} ON {{executions}} (saga, waits_at, waits_since, id) WHERE waits_at IS NOT NULL;

-- Nothing in these changes.
CREATE INDEX {{executions_start_key}} ON {{executions}} ("key", id) WHERE "key" <> '';
CREATE INDEX {{executions_children}} ON {{executions}} (parent, id) WHERE parent IS NOT NULL;

-- The tags of all executions once more, to find these by them.
CREATE TABLE {{tags}} (
	name      TEXT NOT NULL,
	value     TEXT NOT NULL,
	execution TEXT NOT NULL,
	PRIMARY KEY (name, value, execution)
) STRICT, WITHOUT ROWID;

CREATE TRIGGER {{tags_added}} AFTER INSERT ON {{executions}} WHEN new.tags IS NOT NULL BEGIN
	INSERT INTO {{tags}} SELECT key, value, new.id FROM json_each(new.tags);
END;
CREATE TRIGGER {{tags_erased}} AFTER UPDATE OF tags ON {{executions}} WHEN old.tags IS NOT NULL BEGIN
	DELETE FROM {{tags}} WHERE execution = old.id AND (name, value) IN (SELECT key, value FROM json_each(old.tags));
END;
CREATE TRIGGER {{tags_deleted}} AFTER DELETE ON {{executions}} WHEN old.tags IS NOT NULL BEGIN
	DELETE FROM {{tags}} WHERE execution = old.id AND (name, value) IN (SELECT key, value FROM json_each(old.tags));
END;
